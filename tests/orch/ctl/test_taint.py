from __future__ import annotations

from typing import Any

import pytest

from orch.ctl import taint
from orch.ctl.failures import CommandFailed, WrongUsage
from orch.ctl.taint import Change
from tests.fakes.http_api import HttpApi
from tests.orch.ctl.conftest import Orchctl

NODE = "/api/v1/nodes/n1"
SLOW = {"key": "slow", "effect": "NoSchedule"}
OWN = {"key": "own", "value": "db", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("a=b:NoSchedule", Change("a", "b", "NoSchedule", False)),
        ("a:NoExecute", Change("a", "", "NoExecute", False)),
        ("a:NoExecute-", Change("a", "", "NoExecute", True)),
        ("a=b:NoExecute-", Change("a", "b", "NoExecute", True)),
        ("x.io/a-", Change("x.io/a", "", "", True)),
    ],
)
def test_a_taint_is_read(word: str, change: Change) -> None:
    assert taint.read(word) == change


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("a=b", "is no taint: write key=value:Effect"),
        (":NoSchedule", "is no taint"),
        ("a=b:NoScedule", "'NoScedule' is no effect: did you mean 'NoSchedule'?"),
        ("a:", "'' is no effect"),
    ],
)
def test_what_is_no_taint_is_refused(word: str, why: str) -> None:
    with pytest.raises(WrongUsage) as caught:
        taint.read(word)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("words", "after"),
    [
        (["new:NoSchedule"], [SLOW, OWN, {"key": "new", "effect": "NoSchedule"}]),
        (["slow-"], [OWN]),
        (["slow:NoSchedule-", "own-"], []),
        (["slow:NoExecute"], [SLOW, OWN, {"key": "slow", "effect": "NoExecute"}]),
    ],
)
def test_taints_are_set_and_removed(words: list[str], after: list[Any]) -> None:
    wanted = [taint.read(word) for word in words]
    assert taint.changed([SLOW, OWN], wanted, shown="node/n", overwrite=False) == after


@pytest.mark.parametrize("value", ["web", "db"])
def test_a_taint_that_is_set_is_set_again_only_on_purpose(value: str) -> None:
    wanted = [taint.read(f"own={value}:NoExecute")]
    with pytest.raises(CommandFailed, match="node/n has a taint own:NoExecute already"):
        taint.changed([OWN], wanted, shown="node/n", overwrite=False)
    (after,) = taint.changed([OWN], wanted, shown="node/n", overwrite=True)
    assert after["value"] == value


def test_a_taint_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(CommandFailed, match="node/n has no taint gone:NoExecute to remove"):
        taint.changed([OWN], [taint.read("gone:NoExecute-")], shown="node/n", overwrite=False)


async def test_the_list_is_sent_for_the_revision_it_was_made_from(
    orchctl: Orchctl, api: HttpApi
) -> None:
    api.put(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert (await orchctl("taint", "node", "n1", "a=b:NoSchedule")).out == "node/n1 tainted\n"
    (sent,) = api.sent("PATCH")
    assert sent.body == {
        "metadata": {"resourceVersion": "1"},
        "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
    }
    assert (await orchctl("taint", "no/n1", "a-")).out == "node/n1 untainted\n"
    assert api.sent("PATCH")[1].body["spec"] == {"taints": None}


async def test_only_nodes_have_taints(orchctl: Orchctl) -> None:
    result = await orchctl("taint", "pod", "web", "a:NoSchedule")
    assert (result.code, result.err) == (1, "error: pod/web has no taints: only nodes have\n")
    assert (await orchctl("taint", "node", "n1")).code == 2


async def test_a_dry_run_shows_and_sends_nothing(orchctl: Orchctl, api: HttpApi) -> None:
    api.put(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    words = ("--dry-run=client", "-o", "jsonpath={.spec.taints[0].key}")
    assert (await orchctl("taint", "nodes", "--all", "a:NoSchedule", *words)).out == "a"
    assert api.sent("PATCH") == []
