"""The same events under the core group and under their own, over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.orch.server.harness import EVENTS, MERGE, Answer, Api, Pki

GROUP = "events.orch.io"
REPORTS = f"/apis/{GROUP}/v1/namespaces/default/events"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def report(name: str = "e1", **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "regarding": {"kind": "Pod", "name": "p1", "namespace": "default"},
        "reason": "Started",
        "note": "It runs.",
        "type": "Normal",
        "action": "Start",
        "eventTime": "2026-01-01T12:00:00.000000Z",
        "reportingController": "example.com/reporter",
        "reportingInstance": "reporter-1",
        **fields,
    }


def fields_of(answer: Answer) -> list[str]:
    return [cause["field"] for cause in answer.json["details"]["causes"]]


async def test_an_event_of_one_group_is_there_in_the_other(api: Api) -> None:
    made = await api.call("POST", REPORTS, report())
    assert made.status == 201
    assert (made.json["apiVersion"], made.json["note"]) == (f"{GROUP}/v1", "It runs.")
    core = (await api.call("GET", f"{EVENTS}/e1")).json
    assert (core["apiVersion"], core["message"]) == ("v1", "It runs.")
    assert core["involvedObject"] == report()["regarding"]
    assert core["reportingComponent"] == "example.com/reporter"
    assert core["metadata"]["uid"] == made.json["metadata"]["uid"]
    assert not {"note", "regarding", "reportingController"} & core.keys()

    old = {
        "metadata": {"name": "e2"},
        "involvedObject": {"kind": "Pod", "name": "p2", "namespace": "default"},
        "message": "said",
        "count": 3,
        "source": {"component": "c", "host": "h"},
        "firstTimestamp": "2026-01-01T12:00:00Z",
        "lastTimestamp": "2026-01-01T12:00:01Z",
    }
    assert (await api.call("POST", EVENTS, old)).status == 201
    shown = (await api.call("GET", f"{REPORTS}/e2")).json
    assert (shown["note"], shown["deprecatedCount"]) == ("said", 3)
    assert shown["deprecatedSource"] == old["source"]
    assert shown["deprecatedLastTimestamp"] == old["lastTimestamp"]

    listed = (await api.call("GET", f"{REPORTS}?limit=1")).json
    rest = (await api.call("GET", f"{REPORTS}?continue={listed['metadata']['continue']}")).json
    assert (listed["kind"], listed["apiVersion"]) == ("EventList", f"{GROUP}/v1")
    assert [each["note"] for each in listed["items"] + rest["items"]] == ["It runs.", "said"]
    assert (await api.call("DELETE", f"{REPORTS}/e1")).status == 200
    assert (await api.call("GET", f"{EVENTS}/e1")).status == 404
    missing = await api.call("GET", f"{REPORTS}/e1")
    assert missing.json["message"] == f'events.{GROUP} "e1" not found'


async def test_both_groups_are_watched_and_selected_in_their_own_words(api: Api) -> None:
    async def told(path: str) -> list[dict[str, Any]]:
        async with asyncio.timeout(20), api.session("admin").get(api.url(path)) as watch:
            return [orjson.loads(await watch.content.readline()) for _ in range(2)]

    everything = [asyncio.create_task(told(f"{path}?watch=1")) for path in (EVENTS, REPORTS)]
    chosen = "regarding.name=p2,reportingController=example.com/reporter"
    selected = asyncio.create_task(told(f"{REPORTS}?watch=1&fieldSelector={chosen}"))
    other = {"regarding": {"kind": "Pod", "name": "p2", "namespace": "default"}}
    for name, fields in (("e1", {}), ("e2", other), ("e3", other)):
        assert (await api.call("POST", REPORTS, report(name, **fields))).status == 201
    core, own = await asyncio.gather(*everything)
    assert [event["object"]["message"] for event in core] == ["It runs."] * 2
    assert [event["object"]["note"] for event in own] == ["It runs."] * 2
    assert [event["object"]["metadata"]["name"] for event in await selected] == ["e2", "e3"]
    for path, selector, found in (
        (EVENTS, "involvedObject.name=p2,reason=Started", ["e2", "e3"]),
        (REPORTS, "regarding.name=p1,type=Normal", ["e1"]),
        (EVENTS, "involvedObject.name=p1", ["e1"]),
    ):
        listed = await api.call("GET", f"{path}?fieldSelector={selector}")
        assert [each["metadata"]["name"] for each in listed.json["items"]] == found
    for path, selector in ((EVENTS, "regarding.name=p1"), (REPORTS, "involvedObject.name=p1")):
        assert (await api.call("GET", f"{path}?fieldSelector={selector}")).status == 400


async def test_both_show_the_same_table(api: Api) -> None:
    await api.call("POST", REPORTS, report())
    core, own = [(await api.call("GET", p, accept=TABLE)).json for p in (EVENTS, REPORTS)]
    assert core["columnDefinitions"] == own["columnDefinitions"]
    assert core["rows"][0]["cells"] == own["rows"][0]["cells"]
    assert own["rows"][0]["cells"][3:7] == [
        "pod/p1", "", "example.com/reporter, reporter-1", "It runs.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"eventTime": None}, ["eventTime"]),
        ({"type": "Odd"}, ["type"]),
        ({"reportingController": ""}, ["reportingController"]),
        ({"reportingController": "a b"}, ["reportingController"]),
        ({"reportingInstance": None, "action": "", "reason": ""},
         ["reportingInstance", "action", "reason"]),
        ({"reportingInstance": "x" * 129}, ["reportingInstance"]),
        ({"note": "x" * 1025}, ["note"]),
        ({"note": "x" * 1024}, []),
        ({"regarding": {"name": "p", "namespace": "other"}}, ["regarding.namespace"]),
        ({"series": {"count": 1}}, ["series.count", "series.lastObservedTime"]),
        ({"deprecatedCount": 1, "deprecatedSource": {"host": "h"}},
         ["deprecatedSource", "deprecatedCount"]),
        ({"deprecatedFirstTimestamp": "2026-01-01T12:00:00Z"}, ["deprecatedFirstTimestamp"]),
    ],
)  # fmt: skip
async def test_new_events_say_who_reports_what(
    api: Api, fields: dict[str, Any], refused: list[str]
) -> None:
    """pkg/apis/core/validation/events.go"""
    answer = await api.call("POST", REPORTS, report(**fields))
    assert answer.status == (422 if refused else 201), answer.text
    if refused:
        assert fields_of(answer) == refused


async def test_the_core_group_holds_events_with_a_time_to_the_same_words(api: Api) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"name": "p", "namespace": "default"},
        "eventTime": "2026-01-01T12:00:00.000000Z",
    }
    answer = await api.call("POST", EVENTS, event)
    wanted = ["reportingComponent", "reportingInstance", "action", "reason"]
    assert (answer.status, fields_of(answer)) == (422, wanted)


async def test_only_the_series_of_an_event_changes(api: Api) -> None:
    await api.call("POST", REPORTS, report())
    path = f"{REPORTS}/e1"
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T12:00:09.000000Z"}}
    for patch, code in ((series, 200), ({"note": "other"}, 422), ({"series": {"count": 1}}, 422)):
        answer = await api.call("PATCH", path, patch, content_type=MERGE)
        assert answer.status == code, answer.text
    core = (await api.call("GET", f"{EVENTS}/e1")).json
    assert (core["series"]["count"], core["message"]) == (2, "It runs.")
    changed = await api.call("PATCH", f"{EVENTS}/e1", {"message": "new"}, content_type=MERGE)
    assert changed.status == 200
    replaced = await api.call("PUT", path, {**report(note="new"), **series})
    assert (replaced.status, replaced.json["note"]) == (200, "new")
    unknown = {**report("e9"), "message": "of the other group"}
    strict = await api.call("POST", f"{REPORTS}?fieldValidation=Strict", unknown)
    assert (strict.status, 'unknown field "message"' in strict.json["message"]) == (400, True)


async def test_an_applied_event_is_owned_in_the_words_of_each_group(api: Api) -> None:
    applied = await api.call("PATCH", f"{REPORTS}/e1?fieldManager=a", report(), content_type=APPLY)
    assert applied.status == 201, applied.text
    (own,) = applied.json["metadata"]["managedFields"]
    assert own["apiVersion"] == f"{GROUP}/v1"
    assert {"f:note", "f:regarding", "f:reportingController"} <= own["fieldsV1"].keys()
    (core,) = (await api.call("GET", f"{EVENTS}/e1")).json["metadata"]["managedFields"]
    assert core["apiVersion"] == "v1"
    assert {"f:message", "f:involvedObject", "f:reportingComponent"} <= core["fieldsV1"].keys()
    rival = {"apiVersion": "v1", "kind": "Event", "message": "mine"}
    refused = await api.call("PATCH", f"{EVENTS}/e1?fieldManager=b", rival, content_type=APPLY)
    assert (refused.status, fields_of(refused)) == (409, [".message"])
    again = await api.call("PATCH", f"{REPORTS}/e1?fieldManager=a", report(), content_type=APPLY)
    assert (again.status, again.json["note"]) == (200, "It runs.")


async def test_the_rights_are_those_of_the_group_that_was_asked(api: Api) -> None:
    assert (await api.call("POST", REPORTS, report(), user="n1")).status == 201
    assert (await api.call("GET", f"{REPORTS}/e1", user="n1")).status == 403
    role = {
        "metadata": {"name": "reader"},
        "rules": [{"verbs": ["get"], "apiGroups": [GROUP], "resources": ["events"]}],
    }
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.orch.io"},
        "subjects": [{"kind": "User", "name": "stranger"}],
    }
    rbac = "/apis/rbac.authorization.orch.io/v1/namespaces/default"
    assert (await api.call("POST", f"{rbac}/roles", role)).status == 201
    assert (await api.call("POST", f"{rbac}/rolebindings", binding)).status == 201
    assert (await api.call("GET", f"{REPORTS}/e1", user="stranger")).status == 200
    assert (await api.call("GET", f"{EVENTS}/e1", user="stranger")).status == 403


async def test_a_quota_counts_events_of_both_groups(api: Api) -> None:
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"count/events": "1"}}}
    quotas = "/api/v1/namespaces/default/resourcequotas"
    assert (await api.call("POST", quotas, quota)).status == 201
    await api.turn("quotas")
    assert (await api.call("POST", REPORTS, report("e1"))).status == 201
    assert (await api.call("POST", REPORTS, report("e2"))).status == 403


async def test_the_reference_s_name_of_the_group_leads_to_the_same_events(
    server_pki: Pki, tmp_path: Path
) -> None:
    api = await Api.start(server_pki, tmp_path / "aliases", "--serve-upstream-aliases")
    try:
        theirs = REPORTS.replace(GROUP, "events.k8s.io")
        sent = {**report(), "apiVersion": "events.k8s.io/v1"}
        made = await api.call("PATCH", f"{theirs}/e1?fieldManager=a", sent, content_type=APPLY)
        assert made.status == 201, made.text
        assert made.json["apiVersion"] == "events.k8s.io/v1"
        (entry,) = made.json["metadata"]["managedFields"]
        assert entry["apiVersion"] == "events.k8s.io/v1"
        listed = await api.call("GET", f"{theirs}?fieldSelector=regarding.name=p1")
        assert [each["note"] for each in listed.json["items"]] == ["It runs."]
        assert (await api.call("GET", f"{REPORTS}/e1")).json["apiVersion"] == f"{GROUP}/v1"
        assert (await api.call("GET", f"{EVENTS}/e1")).json["message"] == "It runs."
        missing = await api.call("GET", f"{theirs}/e2")
        assert missing.json["message"] == 'events.events.k8s.io "e2" not found'
    finally:
        await api.stop()
