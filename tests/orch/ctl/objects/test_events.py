from __future__ import annotations

import json
from typing import Any

import pytest

from orch.component.process.clock import utc_now
from orch.ctl.objects import watch
from orch.wire import times
from orch.wire.tables.layout import seen
from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

EVENTS = "/api/v1/namespaces/default/events"
END = Answer({"kind": "Status", "reason": "Forbidden", "message": "enough", "code": 403}, 403)


def _event(name: str, when: str, **members: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "name": "web"}
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    told = {"type": "Normal", "reason": name, "lastTimestamp": when, "message": f"of {name}\n"}
    return {"kind": "Event", "metadata": metadata, "involvedObject": about, **told, **members}


LATE = _event("Late", "2026-01-02T00:00:00Z", type="Warning")
EARLY = _event("Early", "2026-01-01T00:00:00Z")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAUSE_S", 0.0)


async def test_events_are_shown_the_latest_last(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", EVENTS] = Answer({"kind": "EventList", "items": [LATE, EARLY]})
    result = await orchctl("events")
    assert result.lines[0].split() == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    rows = [line.split()[1:] for line in result.lines[1:]]
    assert rows == [
        ["Normal", "Early", "Pod/web", "of", "Early"],
        ["Warning", "Late", "Pod/web", "of", "Late"],
    ]


async def test_only_some_types_of_every_namespace(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", "/api/v1/events"] = Answer({"kind": "EventList", "items": [LATE, EARLY]})
    result = await orchctl("events", "-A", "--types", "warning", "--no-headers")
    assert [line.split()[0] for line in result.lines] == ["default"]
    assert "did you mean 'Warning'?" in (await orchctl("events", "--types", "Warnin")).err


async def test_events_of_one_object(orchctl: Orchctl, api: HttpApi) -> None:
    await orchctl("events", "--for", "pod/web")
    assert (api.requests[-1].path, api.requests[-1].query["fieldSelector"]) == (
        EVENTS,
        "involvedObject.kind=Pod,involvedObject.apiVersion=v1,involvedObject.name=web",
    )
    await orchctl("events", "--for", "node/n1")
    assert api.requests[-1].path == "/api/v1/events"
    assert (await orchctl("events", "--for", "web")).code == 2


async def test_no_events_are_said_apart_from_the_output(orchctl: Orchctl) -> None:
    result = await orchctl("events")
    assert (result.code, result.out, result.err) == (
        0, "", "No events found in default namespace.\n",
    )  # fmt: skip


async def test_what_happens_now_is_followed_and_told_once(orchctl: Orchctl, api: HttpApi) -> None:
    again = {**LATE, "metadata": {**LATE["metadata"], "resourceVersion": "2"}, "count": 2}
    lines = [json.dumps({"type": kind, "object": event}) for kind, event in (
        ("ADDED", EARLY), ("MODIFIED", again), ("DELETED", again),
    )]  # fmt: skip
    listed = Answer({"kind": "EventList", "items": [LATE], "metadata": {"resourceVersion": "5"}})
    api.answers["GET", EVENTS] = [listed, Answer("\n".join([*lines, ""])), END]
    result = await orchctl("events", "-w", "--no-headers")
    assert [line.split("Pod/web")[0].split()[-1] for line in result.lines] == [
        "Late", "Early", "Late",
    ]  # fmt: skip
    assert "(x2 over" in result.lines[-1]


async def test_events_are_given_as_data(orchctl: Orchctl, api: HttpApi) -> None:
    api.answers["GET", EVENTS] = Answer({"kind": "EventList", "items": [LATE]})
    shown = json.loads((await orchctl("events", "-o", "json")).out)
    assert [event["reason"] for event in shown["items"]] == ["Late"]


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"lastTimestamp": "NOW"}, "0s"),
        ({"eventTime": "NOW"}, "0s"),
        ({"lastTimestamp": "NOW", "count": 3, "firstTimestamp": "NOW"}, "0s (x3 over 0s)"),
        ({"series": {"lastObservedTime": "NOW", "count": 2}, "eventTime": "NOW"},
         "0s (x2 over 0s)"),
        ({}, "<unknown>"),
    ],
)  # fmt: skip
def test_the_age_says_how_often_it_was_seen(event: dict[str, Any], text: str) -> None:
    now = utc_now()
    told = json.loads(json.dumps(event).replace("NOW", times.format_time(now)))
    shown = seen(told, now).replace("1s", "0s")
    assert shown == text
