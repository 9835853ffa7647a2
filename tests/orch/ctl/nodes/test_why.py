"""`orchctl node why`: the agent's report as a person reads it, and what it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

PATH = "/api/v1/nodes/n1/proxy/pressure"
THIEF = {"namespace": "shop", "pod": "thief", "container": "app"}
CAUSE: dict[str, Any] = {
    "resource": "cpu",
    "kind": "busy",
    "since": "2026-01-31T12:00:00Z",
    "culprit": THIEF,
    "does": "uses 1.9 of 2 cores while others wait 40% of the time",
    "nextStep": "give it a cpu limit",
    "confidence": 0.9,
    "sufferers": 3,
    "suffers": [{"namespace": "shop", "pod": "web", "container": "app"}, {"service": "a.service"}],
}
REPORT: dict[str, Any] = {
    "kind": "NodePressure",
    "nodeName": "n1",
    "time": "2026-01-31T12:04:30Z",
    "windowSeconds": 10,
    "resources": {"cpu": {"some": [40.2, 1, 0]}, "io": {"some": [0, 0, 0]}},
    "causes": [CAUSE],
}
OWN = {**CAUSE, "kind": "limit", "suffers": [THIEF], "sufferers": 1, "confidence": 0.5}


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        (
            {},
            "cpu: pod shop/thief (app) uses 1.9 of 2 cores while others wait 40% of the time, for"
            " 4m30s; pod shop/web (app), service a.service, 1 more suffer. Next: give it a cpu"
            " limit.",
        ),
        (
            {"causes": [OWN]},
            "cpu: probably pod shop/thief (app) uses 1.9 of 2 cores while others wait 40% of the"
            " time, for 4m30s. Next: give it a cpu limit.",
        ),
        (
            {
                "causes": [
                    {
                        **OWN,
                        "resource": "io",
                        "culprit": {},
                        "suffers": [],
                        "sufferers": 0,
                        "since": "",
                    }
                ]
            },
            "disks: probably node n1 uses 1.9 of 2 cores while others wait 40% of the time. Next:"
            " give it a cpu limit.",
        ),
        (
            {"causes": []},
            "n1: tasks wait, and nobody stands out as the cause (cpu 40 %, io 0 %)",
        ),
        (
            {"causes": [], "resources": {"cpu": {"some": [4, 1, 0]}, "io": {"some": []}}},
            "n1: nothing waits long enough to need a cause (cpu 4 %)",
        ),
        (
            {"causes": [], "windowSeconds": 0, "resources": {}},
            "n1: the agent has just started; ask again in ten seconds (pressure unknown)",
        ),
    ],
)
async def test_a_report_is_a_line_for_each_cause(
    orchctl: Orchctl, api: HttpApi, changed: dict[str, Any], shown: str
) -> None:
    api.answers["GET", PATH] = Answer({**REPORT, **changed})
    result = await orchctl("node", "why", "n1")
    assert (result.code, result.lines) == (0, [shown])


async def test_there_are_at_most_five_lines_and_no_control_characters(
    orchctl: Orchctl, api: HttpApi
) -> None:
    hostile = {**CAUSE, "does": "clears\x1b[2J\nyour screen"}
    api.answers["GET", PATH] = Answer({**REPORT, "causes": [hostile] * 9, "more": 2})
    result = await orchctl("node", "why", "n1")
    assert len(result.lines) == 5
    assert "\x1b" not in result.out
    assert result.lines[-1].endswith("(and 6 more causes: -o json)")


async def test_the_report_is_given_as_data(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", PATH] = Answer(REPORT)
    assert json.loads((await orchctl("node", "why", "n1", "-o", "json")).out) == REPORT


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer("404 page not found", status=404), "it is older than this command"),
        (Answer({"kind": "Status", "causes": []}), "answered with something else"),
    ],
)
async def test_an_agent_without_reasons_is_named(
    orchctl: Orchctl, api: HttpApi, answer: Answer, said: str
) -> None:
    api.answers["GET", PATH] = answer
    result = await orchctl("node", "why", "n1")
    assert result.code == 1
    assert said in result.err
