from __future__ import annotations

import tracemalloc

import pytest

from orch.server.metrics import ServerMetrics, request_labels
from orch.server.request.attributes import parse_request
from orch.server.strategy.table import ServedKinds
from tests.orch.server.harness import NODES, PODS, Api, pod


@pytest.mark.parametrize(
    ("request_text", "labels"),
    [
        (
            "GET /api/v1/namespaces/x/pods/p",
            ("GET", "", "v1", "pods", "", "resource", "apiserver"),
        ),
        ("GET /api/v1/pods", ("LIST", "", "v1", "pods", "", "cluster", "apiserver")),
        (
            "PUT /apis/coordination.orch.io/v1/namespaces/x/leases/l",
            ("PUT", "coordination.orch.io", "v1", "leases", "", "resource", "apiserver"),
        ),
        (
            "PATCH /api/v1/nodes/n/status",
            ("PATCH", "", "v1", "nodes", "status", "resource", "apiserver"),
        ),
        ("GET /api/v1/nodes/n/made-up", ("GET", "", "v1", "nodes", "", "resource", "apiserver")),
        ("GET /apis/made.up/v1/things", ("LIST", "", "", "", "", "", "apiserver")),
        ("GET /made/up", ("GET", "", "", "", "", "", "apiserver")),
        ("BREW /made/up", ("OTHER", "", "", "", "", "", "apiserver")),
    ],
)
def test_labels_are_only_what_is_served(request_text, labels) -> None:
    method, path = request_text.split()
    assert request_labels(parse_request(method, path, {}), ServedKinds()) == labels


@pytest.mark.parametrize("path", ["/api/made-up/pods", "/apis/made-up/v1/pods", "/api/v1/made-up"])
def test_a_watch_of_what_is_not_served_makes_no_series_of_its_own(path: str) -> None:
    """Rights know no versions: who may watch pods may ask for those of any version."""
    metrics = ServerMetrics()
    metrics.watch_events(parse_request("GET", path, {"watch": "1"}))
    assert "made-up" not in metrics.registry.render("")[0].decode()


def test_long_paths_are_counted_and_not_remembered() -> None:
    metrics = ServerMetrics()
    tracemalloc.start()
    try:
        for number in range(500):
            path = f"/api/v1/namespaces/x/{number}{8_000 * 'x'}"
            metrics.observe(parse_request("GET", path, {}), dry_run=False, code=401, seconds=0.1)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000, kept
    assert 'code="401",component="apiserver"' in metrics.registry.render("")[0].decode()


def test_long_running_requests_are_counted_but_not_timed() -> None:
    metrics = ServerMetrics()
    info = parse_request("GET", "/api/v1/pods", {"watch": "1"})
    metrics.observe(info, dry_run=False, code=200, seconds=1800.0)
    metrics.observe(info, dry_run=False, code=200, seconds=1800.0)
    page = metrics.registry.render("")[0].decode()
    assert 'verb="WATCH",version="v1"} 2.0' in page
    assert "apiserver_request_duration_seconds_count" not in page


async def test_who_asked_what_was_allowed_and_how_long_admission_took_is_counted(api: Api) -> None:
    async def shown() -> set[str]:
        return set((await api.call("GET", "/metrics")).text.splitlines())

    await api.call("GET", NODES, user="stranger")
    await api.call("GET", NODES, user=None)
    refused = await api.call("GET", NODES, user=None, headers={"Authorization": "Bearer nobody"})
    assert refused.status == 401
    assert (await api.call("POST", PODS, pod("p"))).status == 201
    twisted = pod("q", labels={"a": "b"})
    twisted["spec"]["priorityClassName"] = "none-such"
    assert (await api.call("POST", PODS, twisted)).status == 403
    lines = await shown()
    assert 'authentication_attempts{result="failure"} 1.0' in lines
    assert 'authentication_duration_seconds_count{result="failure"} 1.0' in lines
    assert 'authorization_attempts_total{result="no-opinion"} 2.0' in lines
    assert 'authorization_duration_seconds_count{result="no-opinion"} 2.0' in lines
    name = "apiserver_admission_controller_admission_duration_seconds_count"
    asked = 'operation="CREATE",rejected="{}",type="validate"'
    assert f'{name}{{name="NodeRestriction",{asked.format("false")}}} 1.0' in lines
    assert f'{name}{{name="Priorities",{asked.format("true")}}} 1.0' in lines
    name = "apiserver_admission_step_admission_duration_seconds_count"
    assert f"{name}{{{asked.format('true')}}} 1.0" in lines
