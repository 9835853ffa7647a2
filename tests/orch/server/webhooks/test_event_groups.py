"""Webhooks that are asked about events, which two groups have in different words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes.webhook import ALLOW, FakeWebhook, patch, serving
from tests.orch.server.handlers.test_events_group import GROUP, REPORTS, report
from tests.orch.server.harness import EVENTS, MERGE, Api, Pki
from tests.orch.server.webhooks.test_admission import configure, rule

UPSTREAM = "events.k8s.io"
CORE = {
    "metadata": {"name": "e1"},
    "involvedObject": {"kind": "Pod", "name": "p1", "namespace": "default"},
    "message": "said",
    "source": {"component": "c"},
}


@pytest.fixture
async def hooks(server_pki: Pki) -> AsyncIterator[FakeWebhook]:
    fake = FakeWebhook(server_pki)
    async with serving(server_pki, fake.answer) as fake.port:
        yield fake


def named(group: str) -> dict[str, str]:
    return {"group": group, "version": "v1", "resource": "events"}


@pytest.mark.parametrize("group", [GROUP, UPSTREAM])
async def test_an_event_of_the_core_group_is_shown_in_the_words_of_the_rule(
    api: Api, hooks: FakeWebhook, group: str
) -> None:
    hooks.replies["/x"] = lambda _: patch({"op": "replace", "path": "/note", "value": "changed"})
    await configure(api, hooks, "Mutating", {"path": "/x", "rules": [rule("events", group=group)]})
    made = await api.call("POST", EVENTS, CORE)
    assert made.status == 201, made.text
    assert (made.json["apiVersion"], made.json["message"]) == ("v1", "changed")
    assert (made.json["source"], "note" in made.json) == ({"component": "c"}, False)
    (asked,) = hooks("/x")
    assert (asked["resource"], asked["requestResource"]) == (named(group), named(""))
    assert (asked["kind"]["group"], asked["requestKind"]["group"]) == (group, "")
    shown = asked["object"]
    assert (shown["apiVersion"], shown["note"]) == (f"{group}/v1", "said")
    assert (shown["regarding"], shown["deprecatedSource"]) == (
        CORE["involvedObject"], CORE["source"],
    )  # fmt: skip
    assert not {"message", "involvedObject", "source"} & shown.keys()


async def test_an_event_of_its_own_group_is_shown_in_the_words_of_the_core_group(
    api: Api, hooks: FakeWebhook
) -> None:
    change: dict[str, Any] = {"op": "replace", "path": "/message", "value": "changed"}
    hooks.replies["/x"] = lambda _: patch(change)
    await configure(api, hooks, "Mutating", {"path": "/x", "rules": [rule("events")]})
    made = await api.call("POST", REPORTS, report())
    assert (made.status, made.json["note"]) == (201, "changed"), made.text
    hooks.replies["/x"] = lambda _: ALLOW
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T12:00:01.000000Z"}}
    changed = await api.call("PATCH", f"{REPORTS}/e1", series, content_type=MERGE)
    assert (changed.status, changed.json["note"]) == (200, "changed"), changed.text
    assert (await api.call("DELETE", f"{REPORTS}/e1")).status == 200
    create, update, delete = hooks("/x")
    assert (create["object"]["apiVersion"], create["object"]["message"]) == ("v1", "It runs.")
    assert create["object"]["reportingComponent"] == "example.com/reporter"
    assert (create["resource"], create["requestResource"]) == (named(""), named(GROUP))
    assert update["oldObject"]["message"] == update["object"]["message"] == "changed"
    assert (delete["oldObject"]["apiVersion"], delete["object"]) == ("v1", None)


async def test_exact_rules_see_events_of_their_own_group_alone(
    api: Api, hooks: FakeWebhook
) -> None:
    exact = {"path": "/x", "rules": [rule("events", group=GROUP)], "matchPolicy": "Exact"}
    await configure(api, hooks, "Validating", exact)
    assert (await api.call("POST", EVENTS, CORE)).status == 201
    assert hooks("/x") == []
    assert (await api.call("POST", REPORTS, report("e2"))).status == 201
    assert len(hooks("/x")) == 1


async def test_a_webhook_cannot_move_an_event_into_another_group(
    api: Api, hooks: FakeWebhook
) -> None:
    hooks.replies["/x"] = lambda _: patch({"op": "replace", "path": "/apiVersion", "value": "v1"})
    await configure(api, hooks, "Mutating", {"path": "/x", "rules": [rule("events", group=GROUP)]})
    refused = await api.call("POST", EVENTS, CORE)
    assert refused.status == 500
    assert refused.json["message"].endswith("its patch changes apiVersion")
