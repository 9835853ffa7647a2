"""Deadlines and owners, as the reference's own tests ask of webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from orch.server.objects.document import ObjectTarget
from tests.fakes.webhook import ALLOW, FakeWebhook, Record, answered, patch, serving
from tests.garbage import is_left_by
from tests.orch.server.harness import Api, Pki
from tests.orch.server.webhooks.test_admission import MAPS, config_map, configure


@pytest.fixture
async def hooks(server_pki: Pki) -> AsyncIterator[FakeWebhook]:
    fake = FakeWebhook(server_pki)
    async with serving(server_pki, fake.answer) as fake.port:
        yield fake


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_a_webhook_has_no_longer_than_the_request(
    api: Api, hooks: FakeWebhook, kind: str, policy: str
) -> None:
    # K:test/integration/apiserver/admissionwebhook/timeout_test.go
    late = asyncio.Event()

    async def hang(_request: web.Request, review: Record) -> web.Response:
        await late.wait()
        return web.json_response(answered(review, **ALLOW))

    hooks.raw["/x"] = hang
    await configure(api, hooks, kind, {"path": "/x", "timeoutSeconds": 30, "failurePolicy": policy})
    answer = await api.call("POST", f"{MAPS}?timeout=1s", config_map())
    late.set()
    assert (answer.status, answer.json["reason"]) == (504, "Timeout"), answer.text
    assert (await api.call("GET", f"{MAPS}/a")).status == 404


@pytest.mark.parametrize(("path", "seconds"), [("/late", 1), ("/no", 10), ("/unknown", 10)])
@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
async def test_a_request_that_fails_with_a_webhook_leaves_no_garbage(
    api: Api, hooks: FakeWebhook, kind: str, path: str, seconds: int
) -> None:
    late = asyncio.Event()

    async def hang(_request: web.Request, review: Record) -> web.Response:
        await late.wait()
        return web.json_response(answered(review, **ALLOW))

    async def ask() -> None:
        answer = await api.call("POST", MAPS, config_map())
        assert answer.status < 400, answer.text

    hooks.raw["/late"] = hang
    hooks.replies["/no"] = lambda _: {"allowed": False}
    await configure(api, hooks, kind, {"path": path, "timeoutSeconds": seconds})
    is_left = await is_left_by(ask, ObjectTarget)
    late.set()
    assert not is_left


async def test_owners_that_a_webhook_names_twice_are_kept_once_and_warned_about(
    api: Api, hooks: FakeWebhook
) -> None:
    # K:test/integration/apiserver/admissionwebhook/duplicate_owner_ref_test.go
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    operation = {"op": "add", "path": "/metadata/ownerReferences", "value": [owner, owner]}
    hooks.replies["/x"] = lambda _: patch(operation)
    await configure(api, hooks, "Mutating", {"path": "/x"})
    made = await api.call("POST", MAPS, config_map())
    assert made.json["metadata"]["ownerReferences"] == [owner]
    assert "duplicate UID(s) observed: u" in made.headers["Warning"]
