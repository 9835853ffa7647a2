"""Webhooks that are asked about objects of kinds that users define."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes.webhook import ALLOW, FakeWebhook, Record, patch, serving
from tests.orch.server.customresources.widgets import (
    GROUP,
    WIDGETS,
    define,
    definition,
    version,
    widget,
)
from tests.orch.server.harness import MERGE, Answer, Api, Pki
from tests.orch.server.webhooks.test_admission import configure

APPLY = "application/apply-patch+yaml"
NEWER = WIDGETS.replace("/v1/", "/v2/")


@pytest.fixture
async def hooks(server_pki: Pki) -> AsyncIterator[FakeWebhook]:
    fake = FakeWebhook(server_pki)
    async with serving(server_pki, fake.answer) as fake.port:
        yield fake


def rules(*resources: str, versions: tuple[str, ...] = ("v1",)) -> list[Record]:
    return [{
        "operations": ["*"], "apiGroups": [GROUP], "apiVersions": list(versions),
        "resources": list(resources),
    }]  # fmt: skip


async def mutate(
    api: Api, hooks: FakeWebhook, *operations: Record, resource: str = "widgets", **more: Any
) -> None:
    """Have a webhook patch widgets, by a definition that the server has."""
    await define(api, definition("widgets", version(), version("v2", storage=False)))
    hooks.replies["/x"] = lambda _: patch(*operations)
    await configure(api, hooks, "Mutating", {"path": "/x", "rules": rules(resource), **more})


def put(path: str, value: Any, operation: str = "add") -> Record:
    return {"op": operation, "path": path, "value": value}


async def test_what_a_webhook_sets_is_pruned_completed_and_stored(
    api: Api, hooks: FakeWebhook
) -> None:
    part = [{"name": "a"}]
    await mutate(api, hooks, put("/spec/parts", part), put("/spec/odd", 1), put("/spec/size", 7))
    made = await api.call("POST", WIDGETS, widget())
    assert made.status == 201, made.text
    expected = {"size": 7, "color": "red", "parts": [{"name": "a", "count": 1}]}
    assert made.json["spec"] == expected
    assert (await api.call("GET", f"{WIDGETS}/w")).json["spec"] == expected
    assert hooks("/x")[0]["object"]["spec"] == {"size": 1, "color": "red"}  # with its defaults


@pytest.mark.parametrize(
    ("operation", "code", "message"),
    [
        (put("/spec/size", 70), 422, "spec.size: Invalid value: 70"),
        (put("/spec/size", "7"), 422, "spec.size"),
        ({"op": "remove", "path": "/spec/size"}, 422, "spec.size: Required value"),
        (put("/spec/host", "UPPER"), 422, "should match"),
        (put("/apiVersion", f"{GROUP}/v2", "replace"), 400, "changes apiVersion"),
        (put("/kind", "Gadget", "replace"), 400, "changes kind"),
    ],
)
async def test_what_a_webhook_sets_must_fit_the_schema(
    api: Api, hooks: FakeWebhook, operation: Record, code: int, message: str
) -> None:
    await mutate(api, hooks, operation)
    refused = await api.call("POST", WIDGETS, widget())
    assert (refused.status, message in refused.json["message"]) == (code, True), refused.text
    assert (await api.call("GET", f"{WIDGETS}/w")).status == 404


async def test_applies_patches_and_updates_are_asked_about(api: Api, hooks: FakeWebhook) -> None:
    await mutate(api, hooks, put("/spec/size", 7))
    path = f"{WIDGETS}/w?fieldManager=me"

    async def writes() -> AsyncIterator[Answer]:
        yield await api.call("PATCH", path, widget(), content_type=APPLY)
        yield await api.call("PATCH", path, {"spec": {"size": 3}}, content_type=MERGE)
        shown = (await api.call("GET", path)).json
        yield await api.call("PUT", path, {**shown, "spec": {"size": 2, "color": "blue"}})

    async for written in writes():
        assert (written.status < 300, written.json["spec"]["size"]) == (True, 7), written.text
    operations = [request["operation"] for request in hooks("/x")]
    assert operations == ["CREATE", "UPDATE", "UPDATE"]
    assert [request["object"]["spec"]["size"] for request in hooks("/x")] == [1, 3, 2]
    owned = {
        one["manager"]: one["fieldsV1"]["f:spec"]
        for one in (await api.call("GET", path)).json["metadata"]["managedFields"]
    }
    assert "f:size" in owned["me"]


async def test_the_status_and_the_scale_are_asked_about_as_such(
    api: Api, hooks: FakeWebhook
) -> None:
    await mutate(api, hooks, put("/status/ready", True), resource="widgets/status")
    await configure(
        api, hooks, "Validating", {"path": "/scale", "rules": rules("widgets/scale")}, name="s"
    )
    assert (await api.call("POST", WIDGETS, widget())).status == 201
    change = {"status": {"size": 2}}
    changed = await api.call("PATCH", f"{WIDGETS}/w/status", change, content_type=MERGE)
    assert changed.json["status"] == {"size": 2, "ready": True}
    scaled = await api.call(
        "PATCH", f"{WIDGETS}/w/scale", {"spec": {"replicas": 5}}, content_type=MERGE
    )
    assert scaled.status == 200, scaled.text
    (asked,) = hooks("/scale")
    assert (asked["kind"]["kind"], asked["subResource"]) == ("Scale", "scale")
    assert asked["resource"] == {"group": GROUP, "version": "v1", "resource": "widgets"}
    assert asked["object"]["spec"] == {"replicas": 5}
    assert (await api.call("GET", f"{WIDGETS}/w")).json["spec"]["size"] == 5
    hooks.replies["/scaled"] = lambda _: patch(put("/spec/replicas", 4))
    scaling = {"path": "/scaled", "rules": rules("widgets/scale")}
    await configure(api, hooks, "Mutating", scaling, name="m")
    scaled = await api.call(
        "PATCH", f"{WIDGETS}/w/scale", {"spec": {"replicas": 6}}, content_type=MERGE
    )
    assert (scaled.json["kind"], scaled.json["spec"]) == ("Scale", {"replicas": 4}), scaled.text
    hooks.replies["/scale"] = lambda _: {**ALLOW, "allowed": False}
    refused = await api.call(
        "PATCH", f"{WIDGETS}/w/scale", {"spec": {"replicas": 6}}, content_type=MERGE
    )
    assert refused.status == 400
    assert (await api.call("GET", f"{WIDGETS}/w")).json["spec"]["size"] == 4


async def test_another_version_is_no_way_around_a_webhook(api: Api, hooks: FakeWebhook) -> None:
    """It sees the object in the version that its rule names, and the client in its own."""
    await mutate(api, hooks, put("/spec/size", 7))
    await configure(
        api, hooks, "Validating",
        {"path": "/exact", "rules": rules("widgets"), "matchPolicy": "Exact"}, name="e",
    )  # fmt: skip
    made = await api.call("POST", NEWER, {**widget(), "apiVersion": f"{GROUP}/v2"})
    assert made.status == 201, made.text
    assert (made.json["apiVersion"], made.json["spec"]["size"]) == (f"{GROUP}/v2", 7)
    (asked,) = hooks.asked
    assert asked[0] == "/x"
    request = asked[1]
    assert request["object"]["apiVersion"] == f"{GROUP}/v1"
    assert (request["kind"]["version"], request["resource"]["version"]) == ("v1", "v1")
    assert (request["requestKind"]["version"], request["requestResource"]["version"]) == (
        "v2", "v2",
    )  # fmt: skip
    changed = await api.call("PATCH", f"{NEWER}/w", {"spec": {"size": 3}}, content_type=MERGE)
    assert (changed.status, changed.json["spec"]["size"]) == (200, 7)
    old, new = (hooks.asked[-1][1][name] for name in ("oldObject", "object"))
    assert (old["apiVersion"], new["apiVersion"]) == (f"{GROUP}/v1", f"{GROUP}/v1")
    hooks.replies["/x"] = lambda _: ALLOW
    assert (await api.call("DELETE", f"{NEWER}/w")).status == 200
    assert hooks.asked[-1][1]["oldObject"]["apiVersion"] == f"{GROUP}/v1"
