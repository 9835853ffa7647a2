"""Who is recorded for which field by creations, updates, patches and writes of the status."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from orch.server.strategy.base import Strategy
from orch.server.strategy.table import STRATEGIES
from tests.orch.server.harness import (
    EVENTS,
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

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str = "c", **data: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": data}


def entries_of(document: dict[str, Any]) -> dict[tuple[str, str, str], Any]:
    """Fields by manager, operation and subresource."""
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["fieldsV1"]
        for entry in document["metadata"].get("managedFields", ())
    }


async def test_a_creator_owns_what_it_sets_and_what_is_filled_in(api: Api) -> None:
    sent = pod("p", labels={"a": "b"})
    created = (await api.call("POST", f"{PODS}?fieldManager=kubectl-create", sent)).json
    assert (await api.call("GET", f"{PODS}/p")).json == created
    (entry,) = created["metadata"]["managedFields"]
    fields = entry.pop("fieldsV1")
    assert entry == {
        "manager": "kubectl-create",
        "operation": "Update",
        "apiVersion": "v1",
        "time": created["metadata"]["creationTimestamp"],
        "fieldsType": "FieldsV1",
    }
    assert fields["f:metadata"] == {"f:labels": {".": {}, "f:a": {}}}
    assert list(fields) == ["f:metadata", "f:spec"]  # the status is not the creator's
    container = fields["f:spec"]["f:containers"]['k:{"name":"c"}']
    assert container.keys() >= {".", "f:name", "f:image", "f:imagePullPolicy"}


async def test_a_change_moves_fields_to_who_makes_it(api: Api) -> None:
    path = f"{CONFIG_MAPS}/c?fieldManager="
    await api.call("POST", f"{CONFIG_MAPS}?fieldManager=maker", config_map(a="1", b="2"))
    change = {"data": {"b": "3", "c": "4"}}
    changed = (await api.call("PATCH", f"{path}changer", change, content_type=MERGE)).json
    assert entries_of(changed) == {
        ("maker", "Update", ""): {"f:data": {".": {}, "f:a": {}}},
        ("changer", "Update", ""): {"f:data": {"f:b": {}, "f:c": {}}},
    }
    gone = {"data": {"b": None}}
    left = (await api.call("PATCH", f"{path}remover", gone, content_type=MERGE)).json
    assert entries_of(left) == {
        ("maker", "Update", ""): {"f:data": {".": {}, "f:a": {}}},
        ("changer", "Update", ""): {"f:data": {"f:c": {}}},
    }


async def test_a_write_that_changes_nothing_leaves_version_and_managers(api: Api) -> None:
    first = (await api.call("POST", CONFIG_MAPS, config_map(a="1"))).json
    for method, body, kind in (
        ("PUT", first, "application/json"),
        ("PUT", config_map(a="1"), "application/json"),
        ("PATCH", {"data": {"a": "1"}}, MERGE),
        ("PATCH", [], JSON_PATCH),
    ):
        path = f"{CONFIG_MAPS}/c?fieldManager=other"
        assert (await api.call(method, path, body, content_type=kind)).json == first


async def test_the_user_agent_names_who_does_not(api: Api) -> None:
    headers = {"User-Agent": "argocd/v3 (linux)"}
    made = await api.call("POST", CONFIG_MAPS, config_map(a="1"), headers=headers)
    assert list(entries_of(made.json)) == [("argocd", "Update", "")]


async def test_the_status_has_owners_of_its_own(api: Api) -> None:
    await api.call("POST", f"{NODES}?fieldManager=maker", node("n1", labels={"a": "b"}))
    change = {
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    path = f"{NODES}/n1/status?fieldManager=agent"
    after = (await api.call("PATCH", path, change, content_type=STRATEGIC)).json
    condition = {".": {}, "f:status": {}, "f:type": {}}
    assert entries_of(after) == {
        ("maker", "Update", ""): {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}},
        ("agent", "Update", "status"): {
            "f:status": {"f:conditions": {".": {}, 'k:{"type":"Ready"}': condition}}
        },
    }


async def test_of_leases_and_events_nothing_is_recorded_unless_their_creator_is_named(
    api: Api,
) -> None:
    made = (await api.call("POST", LEASES, lease("n1"))).json
    assert "managedFields" not in made["metadata"]
    named = (await api.call("POST", f"{LEASES}?fieldManager=x", lease("n2"))).json
    assert list(entries_of(named)) == [("x", "Update", "")]
    renewed = named | {"spec": {**named["spec"], "renewTime": "2026-01-01T00:00:00.000000Z"}}
    answer = (await api.call("PUT", f"{LEASES}/n2", renewed, headers={"User-Agent": "n/1"})).json
    assert entries_of(answer)[("n", "Update", "")] == {"f:spec": {"f:renewTime": {}}}
    event = {
        "kind": "Event", "apiVersion": "v1", "metadata": {"name": "e"}, "involvedObject": {},
    }  # fmt: skip
    assert "managedFields" not in (await api.call("POST", EVENTS, event)).json["metadata"]


@pytest.mark.parametrize("reset", [[], [{}]])
async def test_all_managers_can_be_forgotten(api: Api, reset: list[Any]) -> None:
    first = (await api.call("POST", CONFIG_MAPS, config_map(a="1"))).json
    patch = {"metadata": {"managedFields": reset}}
    after = (await api.call("PATCH", f"{CONFIG_MAPS}/c", patch, content_type=MERGE)).json
    assert "managedFields" not in after["metadata"]
    assert after["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
    # Nothing is recorded then, until it is applied.
    later = (
        await api.call("PATCH", f"{CONFIG_MAPS}/c", {"data": {"b": "2"}}, content_type=MERGE)
    ).json
    assert "managedFields" not in later["metadata"]


async def test_a_client_may_hand_fields_to_another_manager(api: Api) -> None:
    """As kubectl does when an object is first applied at the server."""
    first = (await api.call("POST", f"{CONFIG_MAPS}?fieldManager=old", config_map(a="1"))).json
    entry = first["metadata"]["managedFields"][0] | {"manager": "kubectl", "operation": "Apply"}
    patch = [
        {"op": "replace", "path": "/metadata/managedFields", "value": [entry]},
        {"op": "replace", "path": "/metadata/resourceVersion",
         "value": first["metadata"]["resourceVersion"]},
    ]  # fmt: skip
    after = await api.call("PATCH", f"{CONFIG_MAPS}/c", patch, content_type=JSON_PATCH)
    assert (after.status, entries_of(after.json)) == (
        200,
        {("kubectl", "Apply", ""): {"f:data": {".": {}, "f:a": {}}}},
    )


@pytest.mark.parametrize(
    "sent",
    [
        [{"manager": "x"}],
        [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
          "fieldsV1": {"nonsense": {}}}],
        "nonsense",
        [{"manager": "x", "operation": "Update", "apiVersion": "v9", "fieldsType": "FieldsV1",
          "fieldsV1": {"f:data": {}}}],
        # Typed clients could read no list with this in it, of any namespace.
        [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
          "fieldsV1": {"f:data": {}}, "time": "yesterday"}],
        [{"manager": "x" * 129, "operation": "Update", "apiVersion": "v1",
          "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}],
        [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
          "fieldsV1": {"f:data": {"v:" + "[" * 300 + "]" * 300: {}}}}],
    ],
)  # fmt: skip
async def test_managers_that_make_no_sense_are_ignored(api: Api, sent: Any) -> None:
    first = (await api.call("POST", CONFIG_MAPS, config_map(a="1"))).json
    patch = {"metadata": {"managedFields": sent}}
    after = await api.call("PATCH", f"{CONFIG_MAPS}/c", patch, content_type=MERGE)
    assert after.json == first


async def test_a_number_of_over_64_bits_is_a_value_as_others_are(api: Api) -> None:
    await api.call("POST", CONFIG_MAPS, config_map(a="1"))
    entry = {"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:data": {"v:1e300": {}}}}  # fmt: skip
    patch = {"metadata": {"managedFields": [entry]}}
    after = await api.call("PATCH", f"{CONFIG_MAPS}/c", patch, content_type=MERGE)
    assert after.status == 200


async def test_a_subresource_cannot_set_managers(api: Api) -> None:
    first = (await api.call("POST", NODES, node("n1", labels={"a": "b"}))).json
    patch = {"metadata": {"managedFields": [{}]}}
    after = await api.call("PATCH", f"{NODES}/n1/status", patch, content_type=MERGE)
    assert after.json == first


async def test_the_oldest_updaters_are_merged_into_one(api: Api) -> None:
    await api.call("POST", f"{CONFIG_MAPS}?fieldManager=m0", config_map(k0="0"))
    for number in range(1, 13):
        change = {"data": {f"k{number}": "x"}}
        path = f"{CONFIG_MAPS}/c?fieldManager=m{number}"
        after = (await api.call("PATCH", path, change, content_type=MERGE)).json
    found = entries_of(after)
    assert len(found) == 10
    assert ("ancient-changes", "Update", "") in found


@pytest.mark.slow
async def test_a_large_object_and_its_managers_go_there_and_back(api: Api) -> None:
    """Its record has twice as many values; the bound of an object is for its own."""
    large = config_map(**{f"key-{number}": "" for number in range(19_000)})
    created = await api.call("POST", CONFIG_MAPS, large)
    assert created.status == 201
    back = created.json
    back["data"]["key-0"] = "changed"
    replaced = await api.call("PUT", f"{CONFIG_MAPS}/c?fieldManager=editor", back)
    assert replaced.status == 200
    assert entries_of(replaced.json)[("editor", "Update", "")] == {"f:data": {"f:key-0": {}}}
    in_yaml = await api.call("GET", f"{CONFIG_MAPS}/c", accept="application/yaml")
    assert in_yaml.status == 200
    more = {"data": {f"more-{number}": "" for number in range(2_000)}}
    refused = await api.call("PATCH", f"{CONFIG_MAPS}/c", more, content_type=MERGE)
    assert refused.status == 413


@pytest.mark.slow
async def test_of_the_largest_objects_only_those_who_apply_are_recorded(api: Api) -> None:
    env = [{"name": f"v{number}"} for number in range(7_000)]
    sent = pod("p") | {"spec": {"containers": [{"name": "c", "image": "x", "env": env}]}}
    made = (await api.call("POST", f"{PODS}?fieldManager=maker", sent)).json
    assert list(entries_of(made)) == [("maker", "Update", "")]
    kind = "application/apply-patch+yaml"
    applied = await api.call("PATCH", f"{PODS}/p?fieldManager=one", sent, content_type=kind)
    assert (applied.status, list(entries_of(applied.json))) == (200, [("one", "Apply", "")])
    refused = await api.call("PATCH", f"{PODS}/p?fieldManager=two", sent, content_type=kind)
    assert (refused.status, "managedFields" in refused.json["message"]) == (413, True)


async def test_more_managers_than_an_object_may_have_are_ignored(api: Api) -> None:
    first = (await api.call("POST", CONFIG_MAPS, config_map(a="1"))).json
    fields = {f"f:{number}": {} for number in range(30_000)}
    entry = first["metadata"]["managedFields"][0] | {"fieldsV1": fields}
    sent = first | {"metadata": {**first["metadata"], "managedFields": [entry]}}
    assert len(orjson.dumps(sent)) < 1024 * 1024
    after = await api.call("PUT", f"{CONFIG_MAPS}/c", sent)
    assert (after.status, after.json) == (200, first)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda one: one.resource.plural)
def test_every_part_of_an_object_says_which_fields_it_sets(strategy: Strategy) -> None:
    """Else whoever applies through it would own fields that it does not change."""
    assert [name for name, part in strategy.parts.items() if part.owned is None] == []
