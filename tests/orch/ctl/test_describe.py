from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.http_api import Answer, HttpApi
from tests.orch.ctl.conftest import Orchctl

LEASE = "/apis/coordination.orch.io/v1/namespaces/orch-node-lease/leases/n1"


@pytest.fixture(autouse=True)
def _objects(api: HttpApi) -> None:
    api.put("/api/v1/nodes/n1", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    api.put(
        "/api/v1/namespaces/d/pods/web",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "d"}},
    )


def _event(api: HttpApi, name: str, **members: Any) -> None:
    api.put(f"/api/v1/namespaces/d/events/{name}", {"metadata": {"name": name}, **members})


async def test_a_node_is_shown_with_its_lease_and_its_pods(orchctl: Orchctl, api: HttpApi) -> None:
    api.put(LEASE, {"spec": {"holderIdentity": "holder"}})
    result = await orchctl("describe", "node", "n1")
    assert result.code == 0
    assert "  HolderIdentity:  holder" in result.lines
    queries = {request.path: request.query for request in api.requests}
    assert queries["/api/v1/pods"] == {
        "fieldSelector": "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed",
        "limit": "500",
    }
    assert queries["/api/v1/events"] == {
        "fieldSelector": "involvedObject.kind=Node,involvedObject.name=n1",
        "limit": "500",
    }


async def test_a_node_without_a_lease_is_still_shown(orchctl: Orchctl, api: HttpApi) -> None:
    assert "Lease:  none, or it may not be read" in (await orchctl("describe", "no/n1")).lines
    api.answers["GET", LEASE] = Answer("", 500)
    assert (await orchctl("describe", "node", "n1")).code == 1


async def test_events_are_shown_the_latest_last(orchctl: Orchctl, api: HttpApi) -> None:
    _event(
        api, "b", type="Warning", reason="Late", lastTimestamp="2026-01-02T00:00:00Z", message="m"
    )
    _event(api, "a", reason="Early", eventTime="2026-01-01T00:00:00.000000Z",
           source={"component": "nodeagent"})  # fmt: skip
    lines = (await orchctl("describe", "pod", "web", "-n", "d")).lines
    assert api.requests[-1].query == {
        "fieldSelector": "involvedObject.kind=Pod,involvedObject.name=web,"
        "involvedObject.namespace=d",
        "limit": "500",
    }
    early, late = lines[-2:]
    assert "Early" in early
    assert "nodeagent" in early
    assert late.split()[:2] == ["Warning", "Late"]


async def test_several_objects_are_shown_and_missing_ones_reported(orchctl: Orchctl) -> None:
    result = await orchctl("describe", "node/n1", "node/n2", "pod/web", "-n", "d")
    assert result.code == 1
    assert [line for line in result.lines if line.startswith("Name:")] == [
        "Name:               n1",
        "Name:         web",
    ]
    assert 'nodes "n2" not found' in result.err


async def test_every_kind_is_described(orchctl: Orchctl, api: HttpApi) -> None:
    api.put("/api/v1/namespaces/d", {"metadata": {"name": "d"}, "status": {"phase": "Active"}})
    assert "Status:       Active" in (await orchctl("describe", "ns", "d")).lines
    api.put(LEASE, {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "holder"}})
    result = await orchctl("describe", "leases", "-n", "orch-node-lease")
    assert any(line.split() == ["Holder", "Identity:", "holder"] for line in result.lines)


async def test_events_can_be_left_out(orchctl: Orchctl, api: HttpApi) -> None:
    result = await orchctl("describe", "pod", "web", "-n", "d", "--show-events=false")
    assert not any(line.startswith("Events:") for line in result.lines)
    assert not any(request.path.endswith("/events") for request in api.requests)


async def test_types_alone_stand_for_all_their_objects(orchctl: Orchctl, api: HttpApi) -> None:
    api.put("/api/v1/nodes/n2", {"metadata": {"name": "n2"}})
    result = await orchctl("describe", "nodes")
    assert sum(line.startswith("Name:") for line in result.lines) == 2
    assert (await orchctl("describe", "ns")).err == "No resources found\n"
    nothing = await orchctl("describe", "leases", "-n", "empty")
    assert (nothing.code, nothing.err) == (0, "No resources found in empty namespace\n")
    assert (await orchctl("describe", "leases", "-A", "-l", "a=b")).err == "No resources found\n"


async def test_what_may_not_be_listed_does_not_hide_the_rest(
    orchctl: Orchctl, api: HttpApi
) -> None:
    for path in ("/api/v1/pods", "/api/v1/events"):
        api.answers["GET", path] = Answer("", 403)
    result = await orchctl("describe", "node", "n1")
    assert (result.code, result.err) == (0, "")
    assert result.lines[0].split() == ["Name:", "n1"]
    assert "Non-terminated Pods:  they may not be listed" in result.lines
    assert result.lines[-1] == "Events:  they may not be listed"
    for path in ("/api/v1/pods", "/api/v1/events"):
        api.answers["GET", path] = Answer("", 500)
        assert (await orchctl("describe", "node", "n1")).code == 1
