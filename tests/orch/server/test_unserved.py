"""Paths, methods and forms of answers that the API server does not serve, and its answers."""

from __future__ import annotations

import pytest

from tests.orch.server.harness import (
    LEASES,
    MERGE,
    NAMESPACES,
    NODES,
    PODS,
    Api,
    lease,
    node,
    pod,
)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/widgets", 404),
        ("GET", "/apis/nowhere.io/v1/widgets", 404),
        ("GET", f"{PODS}/p1/log", 404),
        ("GET", "/nothing", 404),
        ("POST", f"{PODS}/p1", 405),
        ("PUT", PODS, 405),
        ("GET", f"{PODS}/p1/binding", 405),
        ("POST", "/api/v1/pods", 405),
        ("OPTIONS", PODS, 405),
        ("GET", "/api/v1/pods/p1", 404),
        ("GET", "/api/v1/namespaces/default/nodes/n1", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("DELETE", "/api/v1/pods", 405),
        ("PUT", NODES, 405),
    ],
)
async def test_what_is_not_served_is_said_to_be_so(
    api: Api, method: str, path: str, status: int
) -> None:
    assert (await api.call(method, path, {})).status == status


async def test_what_cannot_be_answered_is_not_done(api: Api) -> None:
    await api.call("POST", NODES, node("n1"))
    await api.call("POST", PODS, pod("p"))
    eviction = {"kind": "Eviction", "metadata": {"name": "p"}}
    label = {"metadata": {"labels": {"a": "b"}}}
    before = (await api.call("GET", NODES)).json["metadata"]["resourceVersion"]
    for method, path, body in (
        ("POST", NODES, node("n2")),
        ("PUT", f"{NODES}/n1", node("n1", labels={"a": "b"})),
        ("PUT", f"{LEASES}/l", lease("l")),
        ("PATCH", f"{NODES}/n1", label),
        ("DELETE", f"{NODES}/n1", None),
        ("DELETE", NODES, None),
        ("POST", f"{PODS}/p/eviction", eviction),
        ("POST", f"{PODS}/p/binding", {"target": {"name": "n1"}}),
    ):
        content_type = MERGE if method == "PATCH" else "application/json"
        refused = await api.call(method, path, body, content_type=content_type, accept="text/html")
        assert refused.status == 406, (method, path)
    assert (await api.call("GET", NODES)).json["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", NAMESPACES, "GET,POST"),
        ("POST", "/api/v1/pods", "GET"),
        ("PATCH", PODS, "DELETE,GET,POST"),
        ("POST", f"{PODS}/p", "DELETE,GET,PATCH,PUT"),
        ("DELETE", f"{PODS}/p/status", "GET,PATCH,PUT"),
        ("GET", "/apis/authorization.orch.io/v1/subjectaccessreviews", "POST"),
    ],
)
async def test_a_method_that_a_path_does_not_take_is_told_which_it_takes(
    api: Api, method: str, path: str, allowed: str
) -> None:
    refused = await api.call(method, path)
    assert (refused.status, refused.json["reason"]) == (405, "MethodNotAllowed")
    assert ",".join(sorted(refused.headers["Allow"].split(","))) == allowed
