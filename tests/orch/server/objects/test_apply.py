"""Server-side apply over HTTP: what is merged, refused, shared, taken away and remembered."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.orch.server.harness import MERGE, NAMESPACES, NODES, PODS, Answer, Api, node, pod
from tests.orch.server.objects.test_field_managers import CONFIG_MAPS, config_map, entries_of

APPLY = "application/apply-patch+yaml"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


async def apply(
    api: Api, path: str, body: Any, manager: str = "one", *, user: str = "admin", query: str = ""
) -> Answer:
    full = f"{path}?fieldManager={manager}{query}"
    return await api.call("PATCH", full, body, content_type=APPLY, user=user)


async def test_an_object_is_created_by_the_first_apply_and_changed_by_the_next(api: Api) -> None:
    made = await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1", b="2"))
    assert (made.status, made.json["data"]) == (201, {"a": "1", "b": "2"})
    assert entries_of(made.json) == {("one", "Apply", ""): {"f:data": {"f:a": {}, "f:b": {}}}}
    again = await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1", b="2"))
    assert (again.status, again.json) == (200, made.json)
    fewer = await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1", c="3"))
    assert (fewer.status, fewer.json["data"]) == (200, {"a": "1", "c": "3"})


async def test_a_field_of_another_value_is_a_conflict_unless_forced(api: Api) -> None:
    await api.call("POST", f"{CONFIG_MAPS}?fieldManager=maker", config_map(a="1", b="2"))
    wanted = config_map(a="1", b="x")
    refused = await apply(api, f"{CONFIG_MAPS}/c", wanted)
    status = refused.json
    assert (refused.status, status["reason"]) == (409, "Conflict")
    text = 'conflict with "maker" using v1'
    assert status["message"] == f"Apply failed with 1 conflict: {text}: .data.b"
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": text, "field": ".data.b"}
    ]
    forced = await apply(api, f"{CONFIG_MAPS}/c", wanted, query="&force=true")
    assert forced.json["data"] == {"a": "1", "b": "x"}
    assert entries_of(forced.json) == {
        ("one", "Apply", ""): {"f:data": {"f:a": {}, "f:b": {}}},
        ("maker", "Update", ""): {"f:data": {".": {}, "f:a": {}}},
    }


async def test_equal_fields_are_shared_and_stay_until_nobody_applies_them(api: Api) -> None:
    path = f"{CONFIG_MAPS}/c"
    await apply(api, path, config_map(a="1", b="2"), "one")
    shared = await apply(api, path, config_map(a="1"), "two")
    assert entries_of(shared.json)[("two", "Apply", "")] == {"f:data": {"f:a": {}}}
    left = await apply(api, path, config_map(b="2"), "one")
    assert left.json["data"] == {"a": "1", "b": "2"}
    gone = await apply(api, path, {}, "two")
    assert gone.json["data"] == {"b": "2"}
    assert list(entries_of(gone.json)) == [("one", "Apply", "")]


async def test_an_object_that_was_never_recorded_belongs_to_before_the_first_apply(
    api: Api,
) -> None:
    await api.call("POST", CONFIG_MAPS, config_map(a="1"))
    await api.call(
        "PATCH", f"{CONFIG_MAPS}/c", {"metadata": {"managedFields": [{}]}}, content_type=MERGE
    )
    refused = await apply(api, f"{CONFIG_MAPS}/c", config_map(a="2"))
    assert 'conflict with "before-first-apply" using v1: .data.a' in refused.json["message"]
    shared = await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1"))
    assert list(entries_of(shared.json)) == [
        ("one", "Apply", ""),
        ("before-first-apply", "Update", ""),
    ]


async def test_lists_are_merged_by_their_keys(api: Api) -> None:
    await api.call("POST", f"{PODS}?fieldManager=maker", pod("p"))
    label = {"metadata": {"labels": {"a": "b"}}, "kind": "Pod", "apiVersion": "v1"}
    image = {**label, "spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}
    refused = await apply(api, f"{PODS}/p", image)
    assert refused.json["details"]["causes"][0]["field"] == '.spec.containers[name="c"].image'
    changed = await apply(api, f"{PODS}/p", image, query="&force=1")
    assert changed.json["spec"]["containers"][0]["image"] == "busybox:2"
    assert changed.json["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert entries_of(changed.json)[("one", "Apply", "")] == {
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:image": {}, "f:name": {}}}},
    }


async def test_the_status_is_applied_through_its_own_path(api: Api) -> None:
    await api.call("POST", f"{NODES}?fieldManager=maker", node("n1"))
    sent = node("n1") | {
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    through = await apply(api, f"{NODES}/n1/status", sent)
    assert "unschedulable" not in (through.json.get("spec") or {})
    assert list(entries_of(through.json)[("one", "Apply", "status")]) == ["f:status"]
    main = await apply(api, f"{NODES}/n1", sent, "two")
    assert main.json["spec"] == {"unschedulable": True}
    assert entries_of(main.json)[("two", "Apply", "")] == {"f:spec": {"f:unschedulable": {}}}
    assert (await apply(api, f"{NODES}/n2/status", node("n2"))).status == 404


async def test_what_kubectl_applied_by_itself_is_no_conflict_for_it(api: Api) -> None:
    last = orjson.dumps(config_map(a="1", b="2")).decode()
    made = config_map(a="1", b="2")
    made["metadata"]["annotations"] = {LAST_APPLIED: last}
    created = f"{CONFIG_MAPS}?fieldManager=kubectl-client-side-apply"
    await api.call("POST", created, made)
    wanted = config_map(a="changed", b="2")
    assert (await apply(api, f"{CONFIG_MAPS}/c", wanted, "other")).status == 409
    after = await apply(api, f"{CONFIG_MAPS}/c", wanted, "kubectl")
    assert (after.status, after.json["data"]) == (200, {"a": "changed", "b": "2"})
    remembered = orjson.loads(after.json["metadata"]["annotations"][LAST_APPLIED])
    assert remembered == wanted | {"metadata": {"name": "c", "namespace": "default"}}
    # What somebody else changed since is still a conflict.
    path = f"{CONFIG_MAPS}/c?fieldManager=editor"
    await api.call("PATCH", path, {"data": {"b": "edited"}}, content_type=MERGE)
    assert (await apply(api, f"{CONFIG_MAPS}/c", wanted, "kubectl")).status == 409


async def test_a_dry_run_shows_the_result_and_stores_nothing(api: Api) -> None:
    tried = await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1"), query="&dryRun=All")
    assert (tried.status, tried.json["data"]) == (201, {"a": "1"})
    assert (await api.call("GET", f"{CONFIG_MAPS}/c")).status == 404
    await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1"))
    tried = await apply(api, f"{CONFIG_MAPS}/c", config_map(a="2"), query="&dryRun=All")
    assert (tried.status, tried.json["data"]) == (200, {"a": "2"})
    assert (await api.call("GET", f"{CONFIG_MAPS}/c")).json["data"] == {"a": "1"}


async def test_yaml_is_applied_as_well(api: Api) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: '1'\n"
    made = await apply(api, f"{CONFIG_MAPS}/c", body)
    assert (made.status, made.json["data"]) == (201, {"a": "1"})
    flow = b"{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: '2'}}"
    assert (await apply(api, f"{CONFIG_MAPS}/c", flow)).json["data"] == {"a": "2"}


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (b"[1]", 400, "a configuration is an object"),
        (b"a: [", 400, "as YAML"),
        (b"a: 1\na: 2", 400, "as YAML"),
        (config_map("other"), 400, "does not match the name on the URL"),
        ({"kind": "Secret"}, 400, "does not match the expected kind"),
        ({"apiVersion": "v2"}, 400, "does not match the expected apiVersion"),
        ({"metadata": {"managedFields": []}}, 400, "metadata.managedFields must be nil"),
        ({"metadata": {"finalizers": ["a/b", "a/b"]}}, 400,
         'failed to create typed patch object (default/c; v1, Kind=ConfigMap):'
         ' .metadata.finalizers: duplicate entries for key [="a/b"]'),
        ({"metadata": {"ownerReferences": [{"name": "x"}]}}, 400, "none of the key fields uid"),
        ({"data": {"a": 1}}, 400, "data.a"),
        ({"metadata": {"uid": "wrong"}}, 201, ""),
        ({"metadata": {"resourceVersion": "7"}}, 400, "should not be set on objects to be created"),
        ({"metadata": 1}, 400, "metadata: must be an object"),
    ],
)  # fmt: skip
async def test_what_cannot_be_applied_is_refused(api: Api, body: Any, code: int, text: str) -> None:
    answer = await apply(api, f"{CONFIG_MAPS}/c", body)
    assert answer.status == code
    if text:
        assert text in answer.json["message"]


async def test_a_version_or_uid_in_what_is_applied_is_a_precondition(api: Api) -> None:
    made = (await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1"))).json
    for name, value in (("resourceVersion", "1"), ("uid", "other")):
        wanted = config_map(a="2")
        wanted["metadata"][name] = value
        assert (await apply(api, f"{CONFIG_MAPS}/c", wanted)).status == 409
        wanted["metadata"][name] = made["metadata"][name]
        answer = await apply(api, f"{CONFIG_MAPS}/c", wanted, query="&dryRun=All")
        assert answer.status == 200


async def test_fields_that_are_unknown_are_refused_warned_of_or_kept(api: Api) -> None:
    odd = config_map(a="1") | {"dota": {}}
    for validation, status in (("Strict", 422), ("Warn", 201), ("Ignore", 200)):
        query = f"&fieldValidation={validation}"
        answer = await apply(api, f"{CONFIG_MAPS}/c", odd, query=query)
        assert answer.status == status
        assert ("unknown field" in answer.headers.get("Warning", "")) is (validation == "Warn")


async def test_who_may_not_create_may_not_create_by_apply(api: Api) -> None:
    role = {
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.orch.io/v1",
        "metadata": {"name": "patcher"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}],
    }  # fmt: skip
    binding = {
        "kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.orch.io/v1",
        "metadata": {"name": "patcher"},
        "roleRef": {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole",
                    "name": "patcher"},
        "subjects": [{"kind": "User", "name": "stranger"}],
    }  # fmt: skip
    rbac = "/apis/rbac.authorization.orch.io/v1"
    assert (await apply(api, f"{rbac}/clusterroles/patcher", role)).status == 201
    assert (await apply(api, f"{rbac}/clusterrolebindings/patcher", binding)).status == 201
    refused = await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1"), user="stranger")
    assert (refused.status, "cannot create resource" in refused.json["message"]) == (403, True)
    await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1"))
    answer = await apply(api, f"{CONFIG_MAPS}/c", config_map(b="2"), "two", user="stranger")
    assert answer.status == 200


async def test_kinds_without_a_namespace_and_missing_namespaces(api: Api) -> None:
    space = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "new"}}
    assert (await apply(api, f"{NAMESPACES}/new", space)).status == 201
    nowhere = "/api/v1/namespaces/nowhere/configmaps/c"
    answer = await apply(api, nowhere, config_map(a="1"))
    assert (answer.status, answer.json["details"]["kind"]) == (404, "namespaces")


async def test_an_object_has_a_bounded_number_of_managers(api: Api) -> None:
    for number in range(100):
        answer = await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1"), f"m{number}")
        assert answer.status in (200, 201)
    refused = await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1"), "m100")
    assert (refused.status, "101 field managers" in refused.json["message"]) == (413, True)
    assert (await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1"), "m5")).status == 200


async def test_null_fields_are_applied_as_removals(api: Api) -> None:
    await api.call("POST", CONFIG_MAPS, config_map(a="1") | {"immutable": False})
    wanted = config_map(a="1") | {"immutable": None}
    assert (await apply(api, f"{CONFIG_MAPS}/c", wanted)).status == 409
    forced = await apply(api, f"{CONFIG_MAPS}/c", wanted, query="&force=true")
    assert "immutable" not in forced.json


async def test_applies_are_counted_apart_from_patches(api: Api) -> None:
    await apply(api, f"{CONFIG_MAPS}/c", config_map(a="1"))
    await api.call("PATCH", f"{CONFIG_MAPS}/c", {"data": {"b": "2"}}, content_type=MERGE)
    page = (await api.call("GET", "/metrics")).text
    counted = [line for line in page.splitlines() if line.startswith("apiserver_request_total{")]
    for verb, code in (("APPLY", 201), ("PATCH", 200)):
        labels = (f'verb="{verb}"', f'code="{code}"', 'resource="configmaps"')
        (line,) = [line for line in counted if all(label in line for label in labels)]
        assert line.endswith(" 1.0")
