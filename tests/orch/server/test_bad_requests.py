"""Bad requests of every kind get a Status with a 4xx code, soon, and the server goes on."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from tests.orch.server.harness import (
    JSON_PATCH,
    LEASES,
    MERGE,
    NODES,
    PODS,
    STRATEGIC,
    Api,
    lease,
    node,
    pod,
)

MANY = 10_000
GROWTH_MAX_KB = 200_000
DEEP = b'{"metadata":' * 100_000
DEEP_ENOUGH = b'{"kind":"Node","spec":' + b'{"a":' * 500 + b"1" + b"}" * 501
DOUBLING = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 1000}}] + [
    {"op": "copy", "from": "/metadata/annotations", "path": f"/metadata/annotations/{n}"}
    for n in range(MANY - 1)
]
BAD_BODIES: dict[str, bytes] = {
    "cut short": b'{"kind":"Node"',
    "no object": b"[1,2]",
    "invalid UTF-8": b'{"kind":"Node","metadata":{"name":"\xff\xfe"}}',
    "a lone surrogate": b'{"metadata":{"name":"\\ud800"}}',
    "not a number": b'{"metadata":{"name":"x","generation":NaN}}',
    "a number of 5000 digits": b'{"spec":{"x":' + b"1" * 5000 + b"}}",
    "more than 64 bits": b'{"metadata":{"name":"x"},"spec":{"x":18446744073709551615}}',
    "deep and cut short": DEEP,
    "deep": DEEP_ENOUGH,
    "metadata of the wrong type": b'{"metadata":7}',
    "a name that is a number": b'{"metadata":{"name":7}}',
    "labels that are a list": b'{"metadata":{"name":"x","labels":["a"]}}',
    "a label that is a number": b'{"metadata":{"name":"x","labels":{"a":1}}}',
    "a name with a zero byte": b'{"metadata":{"name":"a\\u0000b"}}',
    "finalizers of the wrong type": b'{"metadata":{"name":"x","finalizers":{"a":1}}}',
    "owners of the wrong type": b'{"metadata":{"name":"x","ownerReferences":[7]}}',
    "spec of the wrong type": b'{"metadata":{"name":"x"},"spec":[]}',
    "a text for a flag": b'{"metadata":{"name":"x"},"spec":{"unschedulable":"true"}}',
    "a number for a flag": b'{"metadata":{"name":"x"},"spec":{"unschedulable":1}}',
    "a time before the year 1": b'{"metadata":{"name":"x"},"status":{"conditions":[{"type":"Ready",'
    b'"status":"True","lastHeartbeatTime":"0001-01-01T00:00:00+14:00"}]}}',
    "another kind": b'{"kind":"Pod","metadata":{"name":"x"}}',
    "a kind of the wrong type": b'{"kind":{"a":1},"metadata":{"name":"x"}}',
}


async def soon(call: Callable[[], Any]) -> Any:
    async with asyncio.timeout(20):
        return await call()


def is_refusal(answer: Any) -> bool:
    status = answer.json
    return (
        400 <= answer.status < 500
        and status["kind"] == "Status"
        and status["code"] == answer.status
        and bool(status["message"])
    )


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
async def test_a_bad_body_is_refused_and_nothing_is_kept(api: Api, body: bytes) -> None:
    answer = await soon(lambda: api.call("POST", NODES, body))
    assert is_refusal(answer), answer.text[:300]
    assert (await api.call("GET", NODES)).json["items"] == []


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"leaseDurationSeconds": "30"}, "spec.leaseDurationSeconds"),
        ({"leaseDurationSeconds": 30.5}, "spec.leaseDurationSeconds"),
        ({"leaseDurationSeconds": True}, "spec.leaseDurationSeconds"),
        ({"holderIdentity": 7}, "spec.holderIdentity"),
        ({"renewTime": 7}, "spec.renewTime"),
    ],
)
async def test_a_wrong_type_is_named_by_its_field(api: Api, spec: Any, path: str) -> None:
    answer = await api.call("POST", LEASES, lease(**spec))
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    assert f"{path}: " in answer.json["message"]
    await api.call("POST", LEASES, lease())
    patched = await api.call("PATCH", f"{LEASES}/n1", {"spec": spec}, content_type=MERGE)
    assert (patched.status, patched.json["reason"]) == (422, "Invalid")
    assert [cause["field"] for cause in patched.json["details"]["causes"]] == [path]


async def test_ten_megabytes_are_refused_without_being_kept(api: Api) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    big = orjson.dumps({"metadata": {"name": "x", "annotations": {"a": "x" * 10_000_000}}})
    for _ in range(3):
        answer = await soon(lambda: api.call("POST", NODES, big))
        assert is_refusal(answer)
        assert answer.status == 413
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_MAX_KB


@pytest.mark.parametrize(
    ("media", "patch", "code"),
    [
        (JSON_PATCH, [{"op": "test", "path": "/kind", "value": "Node"}] * (MANY + 1), 413),
        (JSON_PATCH, DOUBLING, 413),
        (JSON_PATCH, [{"op": "add", "path": "/spec", "value": {"x": 2**64 - 1}}], 400),
        (JSON_PATCH, [{"op": "add", "path": "/metadata", "value": 7}], 400),
        (JSON_PATCH, [{"op": "remove", "path": ""}], 422),
        (JSON_PATCH, [{"op": "move", "from": "/metadata", "path": "/metadata/x"}], 422),
        (JSON_PATCH, {"op": "add"}, 400),
        (JSON_PATCH, [[]], 400),
        (MERGE, b"[" * 100_000, 413),
        (MERGE, b"[" * 10_000, 400),
        (MERGE, b"\xff", 400),
        (MERGE, {"metadata": {"name": "other"}}, 400),
        (MERGE, {"metadata": None}, 400),
        (MERGE, {"spec": {"unschedulable": "yes"}}, 422),
        (STRATEGIC, {"metadata": {"finalizers": [{"a": 1}]}}, 422),
        (STRATEGIC, {"status": {"conditions": [{"no": "key"}]}}, 422),
        (STRATEGIC, {"$patch": "explode"}, 400),
        ("application/yaml", b"a: b", 415),
    ],
)
async def test_a_bad_patch_is_refused_and_changes_nothing(
    api: Api, media: str, patch: Any, code: int
) -> None:
    before = (await api.call("POST", NODES, node())).json
    answer = await soon(lambda: api.call("PATCH", f"{NODES}/n1", patch, content_type=media))
    assert is_refusal(answer), answer.text[:300]
    assert answer.status == code, answer.text[:300]
    assert (await api.call("GET", f"{NODES}/n1")).json == before


async def test_the_most_operations_that_are_taken_are_done_soon(api: Api) -> None:
    await api.call("POST", NODES, node())
    operations = [
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        *(
            {"op": "add", "path": f"/metadata/annotations/{n % 1000}", "value": ""}
            for n in range(MANY - 1)
        ),
    ]
    answer = await soon(
        lambda: api.call("PATCH", f"{NODES}/n1", operations, content_type=JSON_PATCH)
    )
    assert answer.status == 200
    assert len(answer.json["metadata"]["annotations"]) == 1000


@pytest.mark.parametrize(
    "query",
    [
        "limit=" + "9" * 5000,
        "limit=x",
        "timeoutSeconds=" + "9" * 400 + "&watch=true",
        "resourceVersion=" + "9" * 5000,
        "resourceVersion=-1",
        "labelSelector=" + "(" * 5000,
        "labelSelector=a%00in(",
        "fieldSelector=a",
        "fieldSelector=metadata.nam%3Dx",
        "continue=" + "A" * 4001,
        "continue=%ff%fe",
        "includeObject=Everything",
    ],
)
async def test_a_bad_query_is_refused(api: Api, query: str) -> None:
    answer = await soon(lambda: api.call("GET", f"{NODES}?{query}"))
    assert is_refusal(answer), answer.text[:300]


async def test_a_grace_period_of_ages_is_still_a_date(api: Api) -> None:
    await api.call("POST", PODS, pod(node="n1"))
    options = {"gracePeriodSeconds": 2**62}
    answer = await api.call("DELETE", f"{PODS}/p1", options)
    assert answer.status == 200
    assert answer.json["metadata"]["deletionTimestamp"].startswith("20")
    again = await api.call("DELETE", f"{PODS}/p1", {"gracePeriodSeconds": -(2**62)})
    assert again.json["metadata"]["deletionGracePeriodSeconds"] == 1


async def test_bytes_in_a_path_that_are_no_text_are_not_found(api: Api) -> None:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1",
        api.port,
        ssl=api.context("admin"),
    )
    writer.write(b"GET /api/v1/nodes/\xff\xfe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 404")), answer[:200]
    assert (await api.call("GET", NODES)).status == 200


PATCHED = {
    MERGE: {"spec": {"unschedulabel": True}},
    STRATEGIC: {"spec": {"unschedulabel": True}},
    JSON_PATCH: [{"op": "add", "path": "/spec", "value": {"unschedulabel": True}}],
}


@pytest.mark.parametrize("media", PATCHED)
async def test_a_misspelt_field_in_a_patch_is_told_or_refused(api: Api, media: str) -> None:
    await api.call("POST", NODES, node())

    async def patch(validation: str) -> Any:
        path = f"{NODES}/n1?fieldValidation={validation}"
        return await api.call("PATCH", path, PATCHED[media], content_type=media)

    refused = await patch("Strict")
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (422, "patch")
    assert 'strict decoding error: unknown field "spec.unschedulabel"' in refused.json["message"]
    warned = await patch("Warn")
    assert warned.headers["Warning"] == r'299 - "unknown field \"spec.unschedulabel\""'
    assert "Warning" not in (await patch("Strict")).headers  # it is stored: not of this patch
    assert "Warning" not in (await patch("Ignore")).headers


async def test_a_field_that_is_twice_in_a_patch_is_refused_under_strict(api: Api) -> None:
    await api.call("POST", NODES, node())
    body = b'{"metadata":{"labels":{"a":"1","a":"2"}}}'
    path = f"{NODES}/n1?fieldValidation=Strict"
    refused = await api.call("PATCH", path, body, content_type=MERGE)
    assert refused.status == 422
    assert 'duplicate field "metadata.labels.a"' in refused.json["message"]


@pytest.mark.parametrize(
    ("validation", "status"), [("Strict", 422), ("Warn", 200), ("Ignore", 200)]
)
async def test_what_a_json_patch_says_in_vain_is_told_or_refused(
    api: Api, validation: str, status: int
) -> None:
    # K:test/integration/apiserver/field_validation_test.go, testFieldValidationPatchTyped
    await api.call("POST", NODES, node())
    body = b"""[{"op":"add","path":"/metadata/labels","value":{},"foo":1},
        {"op":"add","path":"/a","path":"/metadata/labels/b","value":"c"}]"""
    path = f"{NODES}/n1?fieldValidation={validation}"
    answer = await api.call("PATCH", path, body, content_type=JSON_PATCH)
    texts = 'json patch unknown field "[0].foo"', 'json patch duplicate field "[1].path"'
    assert answer.status == status, answer.text
    if validation == "Strict":
        assert f"strict decoding error: {', '.join(texts)}" in answer.json["message"]
        return
    warned = answer.headers.getall("Warning", [])  # type: ignore[attr-defined]
    assert [text.replace("\\", "") for text in warned] == [
        f'299 - "{text}"' for text in texts if validation == "Warn"
    ]


async def test_an_owner_that_is_named_twice_is_kept_once_and_warned_about(api: Api) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    body = {"metadata": {"name": "n1", "ownerReferences": [owner, owner]}}
    made = await api.call("POST", NODES, body)
    assert made.json["metadata"]["ownerReferences"] == [owner]
    assert "duplicate UID(s) observed: u" in made.headers["Warning"]
    patched = await api.call("PATCH", f"{NODES}/n1", body, content_type=MERGE)
    assert patched.json["metadata"]["ownerReferences"] == [owner]
    assert "duplicate UID(s) observed: u" in patched.headers["Warning"]
