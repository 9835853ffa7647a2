"""`pods/resize` over HTTP: who may change what, and what it does to the generation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.orch.server.harness import MERGE, NODES, PODS, STRATEGIC, Api, node, pod


def sized(cpu: str, memory: str = "64Mi", limit: str = "") -> dict[str, Any]:
    limits = {"limits": {"cpu": limit}} if limit else {}
    return {"requests": {"cpu": cpu, "memory": memory}, **limits}


def patch(resources: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": resources, **fields}]}}


async def make(api: Api, resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "2", "memory": "4Gi", "pods": "110"}
    await api.call("POST", NODES, {**node("n1"), "status": {"allocatable": allocatable}})
    wanted = pod("p", node="n1")
    wanted["spec"]["containers"][0]["resources"] = resources
    wanted["spec"] |= spec
    answer = await api.call("POST", PODS, wanted)
    assert answer.status == 201, answer.text
    status = {"status": {"allocatable": allocatable}}
    await api.call("PATCH", f"{NODES}/n1/status", status, content_type=MERGE)
    made: dict[str, Any] = answer.json
    return made


async def test_a_pod_is_resized_by_patch_and_by_put(api: Api) -> None:
    made = await make(api, sized("100m"))
    at = f"{PODS}/p/resize"
    assert (await api.call("GET", at)).json == made
    sent = patch(sized("200m", "128Mi"), command=["ignored"])
    patched = await api.call("PATCH", at, sent, content_type=STRATEGIC)
    assert patched.status == 200, patched.text
    (container,) = patched.json["spec"]["containers"]
    assert container == {**made["spec"]["containers"][0], "resources": sized("200m", "128Mi")}
    assert (made["metadata"]["generation"], patched.json["metadata"]["generation"]) == (1, 2)
    again = await api.call("PATCH", at, sent, content_type=STRATEGIC)
    assert again.json == patched.json
    body = {**patched.json, "metadata": {**patched.json["metadata"], "labels": {"a": "b"}}}
    body["spec"]["containers"][0]["resources"] = sized("300m", limit="1")
    put = await api.call("PUT", at, body)
    assert (put.status, put.json["metadata"]["generation"]) == (200, 3)
    assert "labels" not in put.json["metadata"]
    late = await api.call("PUT", at, body)
    assert (late.status, late.json["reason"]) == (409, "Conflict")
    assert (await api.call("DELETE", at)).headers["Allow"] == "GET,PATCH,PUT"


async def test_a_limit_that_is_added_is_the_request_where_there_was_none(api: Api) -> None:
    await make(api, {"requests": {"memory": "64Mi"}})
    at = f"{PODS}/p/resize"
    sent = patch({"limits": {"cpu": "500m"}})
    patched = await api.call("PATCH", at, sent, content_type=STRATEGIC)
    (container,) = patched.json["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "64Mi"}


@pytest.mark.parametrize(
    ("resources", "code", "message"),
    [
        ({"limits": {"cpu": "100m", "memory": "64Mi"}}, 422, "Pod QOS Class may not change"),
        (sized("3"), 403, "cpu, requested: 3000, allocatable: 2000"),
        (sized("1", "5Gi"), 403, "memory, requested: 5368709120, allocatable: 4294967296"),
        (sized("2", limit="1"), 422, "must be less than or equal to cpu limit of 1"),
    ],
)
async def test_a_resize_is_refused_with_the_reason(api: Api, resources, code, message) -> None:
    made = await make(api, sized("100m"))
    at = f"{PODS}/p/resize"
    refused = await api.call("PATCH", at, patch(resources), content_type=STRATEGIC)
    assert refused.status == code, refused.text
    assert message in refused.json["message"]
    assert (await api.call("GET", f"{PODS}/p")).json == made


async def test_an_ordinary_update_changes_no_resources_and_no_node_resizes(api: Api) -> None:
    await make(api, sized("100m"))
    sent = patch(sized("200m"))
    plain = await api.call("PATCH", f"{PODS}/p", sent, content_type=STRATEGIC)
    assert plain.status == 422
    at = f"{PODS}/p/resize"
    by_node = await api.call("PATCH", at, sent, user="n1", content_type=STRATEGIC)
    assert by_node.status == 403


async def test_many_resizes_at_once_lose_none(api: Api) -> None:
    """Each sent by whoever comes: every one is a generation, and the last stored is served."""
    await make(api, sized("100m"))
    at = f"{PODS}/p/resize"
    calls = (
        api.call("PATCH", at, patch({"requests": {"cpu": f"{n}m"}}), content_type=STRATEGIC)
        for n in range(200, 216)
    )
    answers = await asyncio.gather(*calls)
    stored = [a.json["metadata"]["generation"] for a in answers if a.status == 200]
    assert sorted(stored) == list(range(2, len(stored) + 2))
    found = (await api.call("GET", f"{PODS}/p")).json
    assert found["metadata"]["generation"] == len(stored) + 1
