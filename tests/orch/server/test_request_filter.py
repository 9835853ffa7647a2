"""The way in, over HTTP: who is let in, who is refused how, and that it is counted."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from orch.component.http import httpd
from orch.server.request.attributes import parse_request
from orch.wire.records.authentication import Identity
from tests.orch.server.harness import LEASES, NODES, PODS, Api, Pki, lease, node, pod

SOMEBODY = Identity("somebody")
WRITE = parse_request("POST", NODES, {})


@pytest.mark.parametrize("path", [NODES, PODS, "/api", "/metrics", "/nothing"])
async def test_without_credentials_nothing_is_told(api: Api, path: str) -> None:
    answer = await api.call("GET", path, user=None)
    assert answer.status == 401
    assert answer.json["message"] == "Unauthorized"
    assert (await api.call("POST", path, {}, user=None)).status == 401


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
async def test_health_needs_no_credentials(api: Api, path: str) -> None:
    assert (await api.call("GET", path, user=None)).status == 200


async def test_no_role_lets_anybody_in_without_credentials(api: Api) -> None:
    everybody = {"kind": "Group", "name": "system:unauthenticated"}
    binding = {
        "metadata": {"name": "open"},
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [everybody],
    }
    path = "/apis/rbac.authorization.orch.io/v1/clusterrolebindings"
    assert (await api.call("POST", path, binding)).status == 201
    assert (await api.call("GET", NODES, user=None)).status == 401
    assert (await api.call("GET", "/healthz/etcd", user=None)).status == 401
    somebody = {"Impersonate-User": "somebody", "Impersonate-Group": "system:masters"}
    for path in (NODES, "/healthz"):
        assert (await api.call("GET", path, user=None, headers=somebody)).status == 401


async def test_health_can_need_credentials(server_pki: Pki, tmp_path: Path) -> None:
    api = await Api.start(server_pki, tmp_path / "data", "--no-anonymous-health")
    assert (await api.call("GET", "/healthz", user=None)).status == 401
    assert (await api.call("GET", "/healthz", user="stranger")).status == 200
    await api.stop()


async def test_a_token_nobody_knows_is_not_anonymous(api: Api) -> None:
    headers = {"Authorization": "Bearer unknown"}
    assert (await api.call("GET", "/healthz", user=None, headers=headers)).status == 401
    assert (await api.call("GET", NODES, user="admin", headers=headers)).status == 200


async def test_a_certificate_that_ends_while_its_connection_stands_is_nobodys_any_more(
    api: Api, monkeypatch
) -> None:
    assert (await api.call("GET", NODES)).status == 200
    monkeypatch.setattr(httpd.clock, "wall_ns", lambda: 4 * 10**19)  # in the year 3237
    for path in (NODES, "/healthz"):
        assert (await api.call("GET", path)).status == 401
    assert (await api.call("GET", "/healthz", user=None)).status == 200


async def test_the_forbidden_is_refused_before_anything_is_looked_at(api: Api) -> None:
    missing = await api.call("GET", f"{NODES}/nobody", user="stranger")
    assert missing.status == 403
    assert missing.json["details"] == {"name": "nobody", "kind": "nodes"}
    assert missing.json["message"] == (
        'nodes "nobody" is forbidden: User "stranger" cannot get resource "nodes" in API group ""'
        " at the cluster scope"
    )
    unknown_kind = await api.call("GET", "/apis/x.io/v1/things", user="stranger")
    assert unknown_kind.status == 403
    nonsense = await api.call("POST", PODS, b"{", user="stranger")
    assert nonsense.status == 403


async def test_a_node_lives_its_life_within_its_bounds(api: Api) -> None:
    assert (await api.call("POST", NODES, node("n1"), user="n1")).status == 201
    assert (await api.call("POST", NODES, node("n2"), user="n1")).status == 403
    assert (await api.call("POST", LEASES, lease("n1"), user="n1")).status == 201
    assert (await api.call("POST", LEASES, lease("n2"), user="n1")).status == 403
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    patched = await api.call(
        "PATCH",
        f"{NODES}/n1/status",
        status,
        user="n1",
        content_type="application/strategic-merge-patch+json",
    )
    assert patched.status == 200
    mirror = pod("static-n1", node="n1", annotations={"orch.io/config.mirror": "x"})
    assert (await api.call("POST", PODS, mirror, user="n1")).status == 201
    assert (await api.call("POST", PODS, pod("plain", node="n1"), user="n1")).status == 403
    await api.call("POST", PODS, pod("other", node="n2"))
    assert (await api.call("GET", f"{PODS}/other", user="n1")).status == 403
    assert (await api.call("GET", f"{PODS}/static-n1", user="n1")).status == 200
    assert (await api.call("GET", f"{PODS}/gone", user="n1")).status == 404
    assert (await api.call("DELETE", f"{PODS}/other", user="n1")).status == 403
    gone = await api.call("DELETE", f"{PODS}/static-n1", {"gracePeriodSeconds": 0}, user="n1")
    assert gone.status == 200


async def test_the_controller_may_do_its_work_and_no_more(api: Api) -> None:
    await api.call("POST", NODES, node("n1"))
    taints = {"spec": {"taints": [{"key": "node.orch.io/unreachable", "effect": "NoExecute"}]}}
    kind = "application/strategic-merge-patch+json"
    patched = await api.call("PATCH", f"{NODES}/n1", taints, user="controller", content_type=kind)
    assert patched.status == 200
    assert (await api.call("GET", "/api/v1/pods", user="controller")).status == 200
    assert (await api.call("DELETE", f"{NODES}/n1", user="controller")).status == 403


class Elsewhere:
    """Somebody's connection."""

    owner: object = None
    network = "192.0.2.1"

    def claim(self, owner: object, rank: int) -> bool:
        return True


async def take_seats(api: Api, stack: contextlib.AsyncExitStack, count: int) -> None:
    for _ in range(count):
        await stack.enter_async_context(api.server.flows.seat(Elsewhere(), SOMEBODY, WRITE))


async def test_too_many_requests_are_asked_to_come_back(server_pki: Pki, tmp_path: Path) -> None:
    bounds = ("--max-requests-inflight=1", "--max-mutating-requests-inflight=1")
    api = await Api.start(server_pki, tmp_path / "data", *bounds, "--request-timeout=400ms")
    async with contextlib.AsyncExitStack() as seats:
        await take_seats(api, seats, 1)
        refused = await api.call("GET", "/api", user="stranger")
        assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
        assert '"stranger"' in refused.json["message"]
        for user in ("admin", "n1", "controller"):  # they have seats of their own
            assert (await api.call("GET", "/api", user=user)).status == 200
        assert (await api.call("GET", "/readyz", user=None)).status == 200
    assert (await api.call("GET", "/api", user="stranger")).status == 200
    page = (await api.call("GET", "/metrics")).text
    labels = 'flow_schema="global-default",priority_level="workload"'
    assert (
        f'apiserver_flowcontrol_rejected_requests_total{{{labels},reason="time-out"}} 1.0' in page
    )
    await api.stop()


async def test_a_request_that_takes_too_long_is_ended(server_pki: Pki, tmp_path: Path) -> None:
    api = await Api.start(server_pki, tmp_path / "data", "--request-timeout=1ns")
    answer = await api.call("POST", NODES, node("n1"))
    assert (answer.status, answer.json["reason"]) == (504, "Timeout")
    await api.stop()


async def test_a_request_may_ask_for_less_time(api: Api) -> None:
    answer = await api.call("POST", f"{NODES}?timeout=1ns", node("n1"))
    assert (answer.status, answer.json["reason"]) == (504, "Timeout")
    for longer in ("0", "32s", "100h", "-3s"):
        assert (await api.call("GET", f"{NODES}?timeout={longer}")).status == 200
    wrong = await api.call("GET", f"{NODES}?timeout=soon")
    assert (wrong.status, wrong.json["reason"]) == (400, "BadRequest")
    assert "soon" in wrong.json["message"]


async def test_the_bounds_on_requests_can_be_lifted(server_pki: Pki, tmp_path: Path) -> None:
    api = await Api.start(server_pki, tmp_path / "data", "--max-mutating-requests-inflight=0")
    async with contextlib.AsyncExitStack() as seats:
        await take_seats(api, seats, 1000)
        assert (await api.call("GET", "/api", user="stranger")).status == 200
    await api.stop()


async def test_requests_are_counted_by_what_is_served_and_not_by_what_is_asked(api: Api) -> None:
    await api.call("POST", PODS, pod())
    await api.call("GET", f"{PODS}/p1")
    await api.call("GET", "/apis/made-up.io/v1/made-up-things/made-up-name")
    await api.call("BREW", PODS)
    page = (await api.call("GET", "/metrics")).text
    assert (
        'apiserver_request_total{code="201",component="apiserver",dry_run="",group="",'
        'resource="pods",scope="namespace",subresource="",verb="POST",version="v1"} 1.0'
    ) in page
    assert 'resource="pods",scope="resource",subresource="",verb="GET"' in page
    assert "made-up" not in page
    assert "BREW" not in page
    assert "# HELP apiserver_request_total [STABLE] " in page
    assert 'apiserver_current_inflight_requests{request_kind="readOnly"} 1.0' in page
    assert 'apiserver_resource_objects{group="",resource="pods"} 1.0' in page
    assert "apiserver_storage_size_bytes" in page
    assert "process_resident_memory_bytes" in page
