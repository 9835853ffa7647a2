from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

LEASE = "/apis/coordination.orch.io/v1/namespaces/orch-node-lease/leases/n1"


@pytest.fixture(autouse=True)
def _objects(api: HttpApi) -> None:
    _node(api, "n1")
    _pod(api, "web")


def _node(api: HttpApi, name: str) -> None:
    api.put(f"/api/v1/nodes/{name}", {"metadata": {"name": name}})


def _pod(api: HttpApi, name: str) -> None:
    api.put(f"/api/v1/namespaces/d/pods/{name}", {"metadata": {"name": name, "namespace": "d"}})


def _event(api: HttpApi, name: str, **members: Any) -> None:
    api.put(f"/api/v1/namespaces/d/events/{name}", {"metadata": {"name": name}, **members})


def _names(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("Name:")]


async def test_a_node_is_shown_with_its_lease_and_its_pods(orchctl: Orchctl, api: HttpApi) -> None:
    api.put(LEASE, {"spec": {"holderIdentity": "holder"}})
    result = await orchctl("describe", "node", "n1")
    assert result.code == 0
    assert "  HolderIdentity:  holder" in result.lines
    selectors = [
        (request.path, request.query["fieldSelector"])
        for request in api.requests
        if "fieldSelector" in request.query
    ]
    about = "involvedObject.name=n1,involvedObject.kind=Node,"
    assert selectors == [
        ("/api/v1/pods", "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed"),
        ("/api/v1/events", f"{about}involvedObject.uid=uid-1"),
        ("/api/v1/events", f"{about}involvedObject.uid=n1"),
    ]


async def test_a_node_without_a_lease_is_still_shown(orchctl: Orchctl, api: HttpApi) -> None:
    lines = (await orchctl("describe", "no/n1")).lines
    (told,) = [line for line in lines if line.startswith("Lease:")]
    assert told.split(maxsplit=1)[1].startswith("Failed to get lease: ")
    assert "not found" in told


async def test_events_are_shown_the_latest_last(orchctl: Orchctl, api: HttpApi) -> None:
    _event(
        api, "b", type="Warning", reason="Late", lastTimestamp="2026-01-02T00:00:00Z", message="m"
    )
    _event(api, "a", reason="Early", eventTime="2026-01-01T00:00:00.000000Z",
           source={"component": "nodeagent"})  # fmt: skip
    lines = (await orchctl("describe", "pod", "web", "-n", "d")).lines
    assert api.requests[-1].query == {
        "fieldSelector": "involvedObject.name=web,involvedObject.namespace=d,"
        "involvedObject.kind=Pod,involvedObject.uid=uid-2",
        "limit": "500",
    }
    early, late = lines[-2:]
    assert "Early" in early
    assert "nodeagent" in early
    assert late.split()[:2] == ["Warning", "Late"]


async def test_what_happened_before_a_mirror_pod_was_made_is_shown_too(
    orchctl: Orchctl, api: HttpApi
) -> None:
    metadata = {"name": "web", "namespace": "d", "annotations": {"orch.io/config.mirror": "static"}}
    api.put("/api/v1/namespaces/d/pods/web", {"metadata": metadata})
    assert (await orchctl("describe", "pod", "web", "-n", "d")).code == 0
    selectors = [r.query["fieldSelector"] for r in api.requests if r.path.endswith("/events")]
    assert [s.rpartition("uid=")[2] for s in selectors] == ["uid-3", "static"]


async def test_several_objects_are_shown_and_missing_ones_reported(orchctl: Orchctl) -> None:
    result = await orchctl("describe", "node/n1", "node/n2", "pod/web", "-n", "d")
    assert result.code == 1
    assert _names(result.lines) == ["n1", "web"]
    at = next(n for n, line in enumerate(result.lines) if line.split() == ["Name:", "web"])
    assert result.lines[at - 2 : at] == ["", ""]
    assert result.lines[at - 3], "two empty lines are between objects"
    assert 'nodes "n2" not found' in result.err


async def test_a_name_that_no_object_has_stands_for_those_that_begin_so(
    orchctl: Orchctl, api: HttpApi
) -> None:
    for name in ("db-1", "db-2"):
        _pod(api, name)
    result = await orchctl("describe", "pods", "db", "-n", "d")
    assert (result.code, _names(result.lines)) == (0, ["db-1", "db-2"])
    assert _names((await orchctl("describe", "pods", "db-1", "-n", "d")).lines) == ["db-1"]
    assert 'pods "b" not found' in (await orchctl("describe", "pods", "b", "-n", "d")).err
    several = await orchctl("describe", "pods", "db", "web", "-n", "d")
    assert (several.code, _names(several.lines)) == (1, ["web"])


async def test_every_kind_is_described(orchctl: Orchctl, api: HttpApi) -> None:
    api.put("/api/v1/namespaces/d", {"metadata": {"name": "d"}, "status": {"phase": "Active"}})
    lines = (await orchctl("describe", "ns", "d")).lines
    assert [line.split() for line in lines[-3:]] == [
        ["Status:"], ["Phase:", "Active"], ["Events:", "<none>"],
    ]  # fmt: skip
    api.put(LEASE, {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "holder"}})
    lines = (await orchctl("describe", "leases", "-n", "orch-node-lease")).lines
    assert "  Holder Identity:  holder" in lines
    assert lines[-1].split() == ["Events:", "<none>"]


async def test_events_can_be_left_out(orchctl: Orchctl, api: HttpApi) -> None:
    result = await orchctl("describe", "pod", "web", "-n", "d", "--show-events=false")
    assert not any(line.startswith("Events:") for line in result.lines)
    assert not any(request.path.endswith("/events") for request in api.requests)


async def test_events_of_several_objects_are_shown_when_asked_for(
    orchctl: Orchctl, api: HttpApi
) -> None:
    for name in ("db-1", "db-2"):
        _pod(api, name)
    for words in (("pods", "db"), ("pods", "db-1", "db-2"), ("pods",)):
        assert "Events:" not in (await orchctl("describe", *words, "-n", "d")).out
        asked = await orchctl("describe", *words, "-n", "d", "--show-events=true")
        assert asked.out.count("Events:") >= 2


async def test_types_alone_stand_for_all_their_objects(orchctl: Orchctl, api: HttpApi) -> None:
    _node(api, "n2")
    assert _names((await orchctl("describe", "nodes")).lines) == ["n1", "n2"]
    assert (await orchctl("describe", "ns")).err == "No resources found\n"
    nothing = await orchctl("describe", "leases", "-n", "empty")
    assert (nothing.code, nothing.err) == (0, "No resources found in empty namespace.\n")
    assert (await orchctl("describe", "leases", "-A", "-l", "a=b")).err == "No resources found\n"


async def test_what_may_not_be_listed_does_not_hide_the_rest(
    orchctl: Orchctl, api: HttpApi
) -> None:
    for path in ("/api/v1/pods", "/api/v1/events"):
        api.answers["GET", path] = Answer("", 403)
    result = await orchctl("describe", "node", "n1")
    assert (result.code, result.err) == (0, "")
    assert _names(result.lines) == ["n1"]
    assert [line.split() for line in result.lines[-2:]] == [
        ["Pods:", "not", "authorized"], ["Events:", "not", "authorized"],
    ]  # fmt: skip
    for path in ("/api/v1/pods", "/api/v1/events"):
        api.answers["GET", path] = Answer("", 500)
        assert (await orchctl("describe", "node", "n1")).code == 1
