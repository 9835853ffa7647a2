"""Kinds that users define, over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.orch.server.customresources.widgets import (
    CRDS,
    GROUP,
    WIDGETS,
    define,
    definition,
    until,
    until_gone,
    version,
    widget,
)
from tests.orch.server.harness import MERGE, PODS, STRATEGIC, Api, Pki, pod

W = f"{WIDGETS}/w"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_objects_of_a_defined_kind_are_created_changed_and_deleted(api: Api) -> None:
    assert (await api.call("GET", WIDGETS)).status == 404
    await define(api, definition())
    created = await api.call("POST", WIDGETS, widget(parts=[{"name": "a"}], odd=1, free={"x": 1}))
    assert created.status == 201, created.text
    assert created.json["spec"] == {
        "size": 1, "color": "red", "free": {"x": 1}, "parts": [{"name": "a", "count": 1}],
    }  # fmt: skip
    assert 'unknown field \\"spec.odd\\"' in created.headers["Warning"]
    assert created.json["metadata"]["generation"] == 1
    patched = await api.call("PATCH", W, {"spec": {"size": 2}}, content_type=MERGE)
    assert (patched.json["spec"]["size"], patched.json["metadata"]["generation"]) == (2, 2)
    listed = await api.call("GET", WIDGETS)
    assert (listed.json["kind"], len(listed.json["items"])) == ("WidgetList", 1)
    strict = await api.call("POST", f"{WIDGETS}?fieldValidation=Strict", widget("x", odd=1))
    assert (strict.status, "spec.odd" in strict.text) == (400, True)
    unversioned = await api.call("PUT", W, widget())
    assert (unversioned.status, "resourceVersion" in unversioned.text) == (422, True)
    assert (await api.call("PUT", f"{WIDGETS}/y", widget("y"))).status == 404
    assert (await api.call("PATCH", W, {}, content_type=STRATEGIC)).status == 415
    assert (await api.call("DELETE", W)).status == 200
    assert (await api.call("GET", W)).status == 404


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"size": 10}, "spec.size"),
        ({"size": "1"}, "spec.size"),
        ({"color": "green"}, "spec.color"),
        ({"host": "A"}, "spec.host"),
        ({"port": 1.5}, "spec.port"),
        ({"labels": {"a": 1}}, "spec.labels.a"),
        ({"parts": [{"count": 1}]}, "spec.parts[0].name"),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, "spec.parts[1]"),
        ({"tags": ["a", "a"]}, "spec.tags[1]"),
        ({"host": "a" * 70_000}, "spec.host"),
    ],
)
async def test_a_value_that_does_not_fit_the_schema_is_refused_by_its_path(
    api: Api, spec: dict[str, Any], field: str
) -> None:
    await define(api, definition())
    refused = await api.call("POST", WIDGETS, widget(**spec))
    assert refused.status == 422, refused.text
    assert [cause["field"] for cause in refused.json["details"]["causes"]] == [field]


async def test_status_is_written_apart_from_the_rest(api: Api) -> None:
    await define(api, definition())
    sent = {**widget(), "status": {"ready": True}}
    assert "status" not in (await api.call("POST", WIDGETS, sent)).json
    change = {"spec": {"size": 9}, "status": {"ready": True}, "metadata": {"labels": {"a": "b"}}}
    done = (await api.call("PATCH", f"{W}/status", change, content_type=MERGE)).json
    assert (done["spec"]["size"], done["status"]) == (1, {"ready": True})
    assert (done["metadata"]["generation"], "labels" in done["metadata"]) == (1, False)
    rest = await api.call("PATCH", W, {"status": {"ready": False}}, content_type=MERGE)
    assert rest.json["status"] == {"ready": True}


async def test_scale_reads_and_sets_the_replicas(api: Api) -> None:
    await define(api, definition())
    await api.call("POST", WIDGETS, widget())
    await api.call("PATCH", f"{W}/status", {"status": {"size": 5}}, content_type=MERGE)
    scale = (await api.call("GET", f"{W}/scale")).json
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 5})
    scale["spec"]["replicas"] = 3
    assert (await api.call("PUT", f"{W}/scale", scale)).json["spec"] == {"replicas": 3}
    assert (await api.call("PUT", f"{W}/scale", scale)).status == 409
    change = {"spec": {"replicas": 4}}
    assert (await api.call("PATCH", f"{W}/scale", change, content_type=MERGE)).status == 200
    found = (await api.call("GET", W)).json
    assert (found["spec"]["size"], found["metadata"]["generation"]) == (4, 3)
    for wrong in (-1, "x", 10):
        change = {"spec": {"replicas": wrong}}
        refused = await api.call("PATCH", f"{W}/scale", change, content_type=MERGE)
        assert refused.status == 422, refused.text
    assert (await api.call("POST", f"{W}/scale", scale)).status == 405


async def test_apply_merges_lists_by_the_keys_of_the_schema(api: Api) -> None:
    await define(api, definition())

    async def apply(manager: str, **spec: Any) -> Any:
        sent = {**widget(), "spec": spec}
        path = f"{W}?fieldManager={manager}"
        return await api.call("PATCH", path, sent, content_type=APPLY)

    assert (await apply("a", size=1, parts=[{"name": "a"}], tags=["x"])).status == 201
    merged = await apply("b", size=1, parts=[{"name": "b", "count": 2}], tags=["y"])
    assert merged.status == 200, merged.text
    parts = [{"name": "a", "count": 1}, {"name": "b", "count": 2}]
    assert sorted(merged.json["spec"]["parts"], key=str) == sorted(parts, key=str)
    assert sorted(merged.json["spec"]["tags"]) == ["x", "y"]
    assert (await apply("b", size=2, parts=[])).status == 409
    odd = await apply("b", size=1, odd=1)
    assert (odd.status, ".spec.odd: field not declared" in odd.text) == (400, True)
    dropped = await apply("b", size=1)
    assert (dropped.json["spec"]["parts"], dropped.json["spec"]["tags"]) == (parts[:1], ["x"])


async def test_a_table_has_the_columns_of_the_definition(api: Api) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Part", "type": "string", "jsonPath": '.spec.parts[?(@.name=="b")].count'},
        {"name": "Old", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1},
    ]
    await define(api, definition("widgets", version(additionalPrinterColumns=columns)))
    await api.call("POST", WIDGETS, widget(parts=[{"name": "b", "count": 7}]))
    await api.call("POST", WIDGETS, widget("x"))
    table = (await api.call("GET", WIDGETS, accept=TABLE)).json
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Size", "Part", "Old"]
    assert [row["cells"][:3] for row in table["rows"]] == [["w", 1, "7"], ["x", 1, ""]]
    assert table["rows"][0]["cells"][3].endswith("s")


@pytest.mark.parametrize(
    ("path", "kind", "cells"),
    [
        (".spec.free.x[*]", "integer", [1, 1, 1, "", ""]),
        (".spec.free.*[*]", "integer", [1, 1, 1, "", ""]),
        (".spec.free.*", "string", ["trues", "trues", "trues", "", ""]),
        (".spec.free.x", "string", ["[1,1,", "[1,1,", "", "", ""]),
        (".spec.free.y", "string", ['{"b":', '{"b":', '{"b":', '{"b":', '{"b":']),
        (".spec.free.t", "string", ["trues", "trues", "trues", "trues", "trues"]),
    ],
)
async def test_columns_of_a_large_object_go_through_so_many_values(
    api: Api, path: str, kind: str, cells: list[Any]
) -> None:
    columns = [{"name": f"C{n}", "type": kind, "jsonPath": path} for n in range(5)]
    await define(api, definition("widgets", version(additionalPrinterColumns=columns)))
    free = {"x": [1] * 19_950, "y": {"b": 1}, "t": "trues"}
    assert (await api.call("POST", WIDGETS, widget(free=free))).status == 201
    shown = (await api.call("GET", WIDGETS, accept=TABLE)).json["rows"][0]["cells"]
    assert [cell[:5] if isinstance(cell, str) else cell for cell in shown[1:]] == cells


@pytest.mark.parametrize("value", [1e300, 2.0**64, -1e19])
async def test_a_number_too_large_for_a_whole_one_breaks_no_table(api: Api, value: float) -> None:
    columns = [{"name": "Free", "type": "integer", "jsonPath": ".spec.free.x"}]
    await define(api, definition("widgets", version(additionalPrinterColumns=columns)))
    await api.call("POST", WIDGETS, widget(free={"x": value}))
    await api.call("POST", WIDGETS, widget("x", free={"x": 7.0}))
    table = await api.call("GET", WIDGETS, accept=TABLE)
    assert table.status == 200, table.text
    assert [row["cells"] for row in table.json["rows"]] == [["w", value], ["x", 7]]


@pytest.mark.slow
async def test_each_version_shows_the_same_objects(api: Api) -> None:
    newer = version("v2", storage=False)
    await define(api, definition("widgets", version(), newer))
    two = WIDGETS.replace("/v1/", "/v2/")
    made = await api.call("POST", two, {**widget(), "apiVersion": f"{GROUP}/v2"})
    assert made.json["apiVersion"] == f"{GROUP}/v2"
    for path, shown in ((WIDGETS, f"{GROUP}/v1"), (two, f"{GROUP}/v2")):
        listed = (await api.call("GET", path)).json
        versions = [listed["apiVersion"], listed["items"][0]["apiVersion"]]
        assert versions == [shown, shown]
        assert (await api.call("GET", f"{path}/w")).json["apiVersion"] == shown
        changed = await api.call("PATCH", f"{path}/w", {"spec": {"size": 5}}, content_type=MERGE)
        assert (changed.status, changed.json["apiVersion"]) == (200, shown)
        query = "?watch=1&timeoutSeconds=1&resourceVersion=0"
        event = orjson.loads((await api.call("GET", path + query)).body.splitlines()[0])
        assert event["object"]["apiVersion"] == shown
    name = f"{CRDS}/widgets.{GROUP}"
    found = (await api.call("GET", name)).json
    assert found["status"]["storedVersions"] == ["v1"]
    found["spec"]["versions"] = [version(storage=False, served=False), version("v2")]
    moved = (await api.call("PUT", name, found)).json
    assert moved["status"]["storedVersions"] == ["v1", "v2"]
    async with asyncio.timeout(20):
        while (await api.call("GET", WIDGETS)).status != 404:
            await asyncio.sleep(0.01)
    await api.call("PATCH", f"{two}/w", {"spec": {"size": 6}}, content_type=MERGE)
    assert (await api.call("GET", f"{two}/w")).json["spec"]["size"] == 6
    moved = (await api.call("GET", name)).json
    moved["spec"]["versions"] = [version("v2")]
    assert "storedVersions" in (await api.call("PUT", name, moved)).text


async def test_documents_about_the_served_kinds_follow_the_definitions(api: Api) -> None:
    async def groups() -> list[str]:
        listed = [g["name"] for g in (await api.call("GET", "/apis")).json["groups"]]
        aggregated = (await api.call("GET", "/apis", accept=V2)).json["items"]
        assert {GROUP} & set(listed) == {GROUP} & {i["metadata"]["name"] for i in aggregated}
        return listed

    assert GROUP not in await groups()
    await define(api, definition("widgets", shortNames=["wd"], categories=["all"]))
    assert GROUP in await groups()
    listed = (await api.call("GET", f"/apis/{GROUP}/v1")).json["resources"]
    assert [each["name"] for each in listed] == ["widgets", "widgets/status", "widgets/scale"]
    assert (listed[0]["shortNames"], listed[0]["categories"]) == (["wd"], ["all"])
    index = (await api.call("GET", "/openapi/v3")).json["paths"]
    described = await api.call("GET", index[f"apis/{GROUP}/v1"]["serverRelativeURL"])
    schema = described.json["components"]["schemas"]["com.example.v1.Widget"]
    assert schema["properties"]["spec"]["properties"]["size"]["maximum"] == 9
    item = described.json["paths"][f"/apis/{GROUP}/v1/namespaces/{{namespace}}/widgets/{{name}}"]
    assert STRATEGIC not in item["patch"]["requestBody"]["content"]
    older = (await api.call("GET", "/openapi/v2")).json
    assert "com.example.v1.Widget" in older["definitions"]
    await api.call("DELETE", f"{CRDS}/widgets.{GROUP}")
    await until_gone(api, f"widgets.{GROUP}")
    assert GROUP not in await groups()
    assert f"apis/{GROUP}/v1" not in (await api.call("GET", "/openapi/v3")).json["paths"]


async def test_lists_may_have_a_kind_of_their_own(api: Api) -> None:
    await define(api, definition("widgets", listKind="Widgetry"))
    await define(api, definition("widgetlists", kind="WidgetList"))
    listed = (await api.call("GET", WIDGETS)).json
    assert (listed["kind"], listed["items"]) == ("Widgetry", [])
    schemas = (await api.call("GET", f"/openapi/v3/apis/{GROUP}/v1")).json["components"]["schemas"]
    assert "items" in schemas["com.example.v1.Widgetry"]["properties"]
    assert "spec" in schemas["com.example.v1.WidgetList"]["properties"]


async def test_with_its_definition_a_kind_loses_its_objects_and_its_watches(api: Api) -> None:
    name = f"widgets.{GROUP}"
    await define(api, definition())
    held = widget("held")
    held["metadata"]["finalizers"] = ["held.example.com"]
    for each in (held, widget()):
        assert (await api.call("POST", WIDGETS, each)).status == 201
    uid = (await api.call("GET", W)).json["metadata"]["uid"]
    reference = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "name": "w", "uid": uid}
    await api.call("POST", PODS, pod("owned", ownerReferences=[reference]))
    watching = asyncio.ensure_future(api.call("GET", f"{WIDGETS}?watch=1"))
    await api.call("DELETE", f"{CRDS}/{name}")
    await until(api, name, Terminating="True")
    async with asyncio.timeout(20):
        while (await api.call("GET", W)).status != 404:
            await asyncio.sleep(0.01)
    assert (await api.call("POST", WIDGETS, widget("late"))).status == 405
    late = await api.call("PATCH", f"{WIDGETS}/late?fieldManager=a", widget("late"),
                          content_type=APPLY)  # fmt: skip
    assert late.status == 405
    freed = {"metadata": {"finalizers": None}}
    await api.call("PATCH", f"{WIDGETS}/held", freed, content_type=MERGE)
    await until_gone(api, name)
    async with asyncio.timeout(20):
        events = [orjson.loads(line) for line in (await watching).body.splitlines()]
    assert [event["type"] for event in events][-1] == "DELETED"
    assert (await api.call("GET", WIDGETS)).status == 404
    assert (await api.call("GET", f"{PODS}/owned")).status == 404
    await define(api, definition())
    assert (await api.call("GET", WIDGETS)).json["items"] == []


async def test_objects_go_with_their_owner_and_with_their_namespace(api: Api) -> None:
    await define(api, definition())
    owner = (await api.call("POST", WIDGETS, widget())).json["metadata"]
    reference = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "name": "w", "uid": owner["uid"]}
    await api.call("POST", PODS, pod("owned", ownerReferences=[reference]))
    owned = widget("owned")
    owned["metadata"]["ownerReferences"] = [reference]
    await api.call("POST", WIDGETS, owned)
    await api.call("DELETE", W)
    await api.turn("dependents")
    for path in (f"{PODS}/owned", f"{WIDGETS}/owned"):
        assert (await api.call("GET", path)).status == 404
    await api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "brief"}})
    brief = WIDGETS.replace("default", "brief")
    assert (await api.call("POST", brief, widget())).status == 201
    await api.call("DELETE", "/api/v1/namespaces/brief")
    await api.turn("namespaces")
    assert (await api.call("GET", "/api/v1/namespaces/brief")).status == 404
    assert (await api.call("GET", f"/apis/{GROUP}/v1/widgets")).json["items"] == []


async def test_a_quota_counts_objects_of_defined_kinds(api: Api) -> None:
    await define(api, definition())
    spec = {"hard": {f"count/widgets.{GROUP}": "1"}}
    quotas = "/api/v1/namespaces/default/resourcequotas"
    await api.call("POST", quotas, {"metadata": {"name": "q"}, "spec": spec})
    await api.turn("quotas")
    assert (await api.call("POST", WIDGETS, widget())).status == 201
    refused = await api.call("POST", WIDGETS, widget("x"))
    assert (refused.status, "exceeded quota" in refused.text) == (403, True)


async def test_rights_are_given_by_group_and_resource(api: Api) -> None:
    await define(api, definition())
    await api.call("POST", WIDGETS, widget())
    assert (await api.call("GET", W, user="stranger")).status == 403
    roles = "/apis/rbac.authorization.orch.io/v1/namespaces/default"
    rule = {"apiGroups": [GROUP], "resources": ["widgets"], "verbs": ["get"]}
    await api.call("POST", f"{roles}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.orch.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "stranger"}],
    }
    await api.call("POST", f"{roles}/rolebindings", binding)
    assert (await api.call("GET", W, user="stranger")).status == 200
    assert (await api.call("GET", f"{W}/status", user="stranger")).status == 403
    assert (await api.call("DELETE", W, user="stranger")).status == 403


async def test_a_kind_with_the_name_of_a_built_in_one_has_none_of_its_rules(api: Api) -> None:
    """Leases have a short cut, pods admission, reviews a handler of their own."""
    for plural in ("leases", "pods", "tokenreviews"):
        await define(api, definition(plural, version(subresources={})))
        path = f"/apis/{GROUP}/v1/namespaces/default/{plural}"
        kind = plural.removesuffix("s").title()
        sent = {"kind": kind, "metadata": {"name": "a"}, "spec": {"size": 1}}
        made = await api.call("POST", path, sent)
        assert (made.status, made.json["spec"]["color"]) == (201, "red"), made.text
        again = {**made.json, "spec": {"size": 99}}
        assert (await api.call("PUT", f"{path}/a", again)).status == 422


async def test_defined_kinds_are_served_after_a_restart(server_pki: Pki, tmp_path: Any) -> None:
    first = await Api.start(server_pki, tmp_path)
    await define(first, definition())
    await first.call("POST", WIDGETS, widget())
    await first.stop()
    again = await Api.start(server_pki, tmp_path)
    assert (await again.call("GET", W)).json["spec"]["size"] == 1
    await again.stop()


async def test_to_apply_a_new_object_takes_the_right_to_create_it(api: Api) -> None:
    await define(api, definition())
    roles = "/apis/rbac.authorization.orch.io/v1/namespaces/default"
    rule = {"apiGroups": [GROUP], "resources": ["widgets"], "verbs": ["get", "patch"]}
    await api.call("POST", f"{roles}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.orch.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "stranger"}],
    }
    await api.call("POST", f"{roles}/rolebindings", binding)
    path = f"{W}?fieldManager=a"
    refused = await api.call("PATCH", path, widget(), content_type=APPLY, user="stranger")
    assert (refused.status, "cannot create" in refused.text) == (403, True)
    assert (await api.call("PATCH", path, widget(), content_type=APPLY)).status == 201
    again = await api.call("PATCH", path, widget(), content_type=APPLY, user="stranger")
    assert again.status == 200
