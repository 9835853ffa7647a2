from __future__ import annotations

from typing import Any

import pytest

from orch.ctl.failures import WrongUsage
from orch.ctl.objects import wait
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

POD = "/api/v1/namespaces/default/pods/web"
READY = {"type": "Ready", "status": "True"}
RUNNING: dict[str, Any] = {"status": {"phase": "Running", "conditions": [READY], "list": ["a b"]}}


@pytest.mark.parametrize(
    ("goal", "record", "met"),
    [
        ("create", RUNNING, True),
        ("create", None, False),
        ("delete", None, True),
        ("delete", RUNNING, False),
        ("condition=Ready", RUNNING, True),
        ("condition=ready=true", RUNNING, True),
        ("condition=Ready=False", RUNNING, False),
        ("condition=Other", RUNNING, False),
        ("jsonpath={.status.phase}=Running", RUNNING, True),
        ("jsonpath='{.status.phase}'=Running", RUNNING, True),
        ("jsonpath={.status.phase}", RUNNING, True),
        ("jsonpath={.status.phase}=Pending", RUNNING, False),
        ("jsonpath=.status.phase=Running", RUNNING, True),
        ("jsonpath={.status.nothing}", RUNNING, False),
        ("jsonpath={.status.list[5]}", RUNNING, False),
        ("jsonpath={.status.list[0]}=a b", RUNNING, True),
    ],
)
def test_a_goal_is_met_or_not(goal: str, record: dict[str, Any] | None, met: bool) -> None:
    assert wait.goal(goal)(record) is met


@pytest.mark.parametrize("text", ["ready", "condition=", "jsonpath=", "jsonpath={.a[}", "delete=x"])
def test_what_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage):
        wait.goal(text)


def _shown(phase: str) -> Answer:
    return Answer({"kind": "Pod", "metadata": {"name": "web"}, "status": {"phase": phase}})


async def test_it_looks_until_the_goal_is_met(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", POD] = [_shown("Pending"), _shown("Pending"), _shown("Running")]
    result = await orchctl("wait", "pod/web", "--for", "jsonpath={.status.phase}=Running")
    assert (result.code, result.out) == (0, "pod/web condition met\n")
    assert len([r for r in api.requests if r.path == POD]) == 3


async def test_a_time_that_runs_out_says_how_to_see_why(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", POD] = _shown("Pending")
    result = await orchctl("wait", "pod/web", "--for", "condition=Ready", "--timeout", "50ms")
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "error: pod/web did not reach condition=Ready within 0.05 s: 'orchctl describe' shows why\n"
    )


async def test_what_is_to_be_gone_may_be_gone_already(orchctl: Orchctl) -> None:
    result = await orchctl("wait", "pod/web", "--for", "delete")
    assert (result.code, result.out) == (0, "")
    assert (await orchctl("wait", "pods", "-l", "a=b", "--for", "delete")).code == 0


async def test_it_waits_until_an_object_is_gone(orchctl: Orchctl, api: HttpApi) -> None:
    gone = Answer({"kind": "Status", "code": 404}, 404)
    api.answers["GET", POD] = [_shown("Running"), gone]
    result = await orchctl("wait", "pod/web", "--for", "delete")
    assert (result.code, result.out) == (0, "pod/web deleted\n")


async def test_nothing_to_wait_for_is_a_failure(orchctl: Orchctl) -> None:
    result = await orchctl("wait", "pod/web", "--for", "condition=Ready")
    assert (result.code, 'pods "web" not found' in result.err) == (1, True)
    result = await orchctl("wait", "pods", "-l", "a=b", "--for", "condition=Ready")
    assert (result.code, "no such object" in result.err) == (1, True)
