from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from orch.server.discovery import openapi
from orch.server.request.aliases import served_resources
from orch.wire.records.kinds import RESOURCES

GVK = "x-kubernetes-group-version-kind"


def test_the_index_points_to_a_document_per_group_version() -> None:
    documents = openapi.documents(RESOURCES)
    index = orjson.loads(documents["/openapi/v3"])["paths"]
    assert set(index) == {"api/v1", *(f"apis/{r.api_version}" for r in RESOURCES if r.group)}
    for root, entry in index.items():
        path, _, query = entry["serverRelativeURL"].partition("?")
        assert path == f"/openapi/v3/{root}"
        assert query.startswith("hash=")
        assert path in documents


def test_every_kind_has_a_patch_with_field_validation() -> None:
    # What kubectl looks for: CL:cli-runtime/pkg/resource/query_param_verifier_v3.go
    documents = openapi.documents(RESOURCES)
    found = set()
    patched = [one for one in RESOURCES if "patch" in one.verbs]
    for path, body in documents.items():
        for item in orjson.loads(body)["paths"].values():
            operation = item.get("patch") if path != "/openapi/v3" else None
            if operation and any(
                p["in"] == "query" and p["name"] == "fieldValidation"
                for p in operation["parameters"]
            ):
                gvk = operation[GVK]
                found.add((gvk["group"], gvk["version"], gvk["kind"]))
    assert found == {(r.group, r.version, r.kind) for r in patched}


def schemas_of(path: str) -> dict[str, Any]:
    return orjson.loads(openapi.documents(RESOURCES)[path])["components"]["schemas"]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


@pytest.mark.parametrize("path", sorted(openapi.documents(RESOURCES)))
def test_every_reference_leads_somewhere_and_every_operation_has_its_own_name(path: str) -> None:
    document = orjson.loads(openapi.documents(RESOURCES)[path])
    known = document.get("components", {}).get("schemas", {})
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in known
    if path != "/openapi/v3":
        names = [
            operation["operationId"]
            for item in document["paths"].values()
            for method, operation in item.items()
            if method != "parameters"
        ]
        assert len(set(names)) == len(names)


def test_lists_say_how_they_merge() -> None:
    core = schemas_of("/openapi/v3/api/v1")
    containers = core["io.orch.pods.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-list-type"] == "map"
    assert containers["items"] == {"$ref": "#/components/schemas/io.orch.pods.Container"}
    taints = core["io.orch.core.NodeSpec"]["properties"]["taints"]
    assert taints["x-kubernetes-list-type"] == "atomic"
    metadata = core["io.orch.meta.ObjectMeta"]["properties"]
    assert metadata["finalizers"]["x-kubernetes-list-type"] == "set"
    labels = metadata["labels"]
    assert (labels["type"], labels["additionalProperties"]) == ("object", {"type": "string"})


def test_a_kind_is_found_by_its_group_version_and_kind() -> None:
    core = schemas_of("/openapi/v3/api/v1")
    assert core["io.orch.pods.Pod"][GVK] == [{"group": "", "version": "v1", "kind": "Pod"}]
    assert core["io.orch.pods.PodList"][GVK][0]["kind"] == "PodList"
    assert core["io.orch.core.Taint"]["required"] == ["key", "effect"]
    spec = core["io.orch.pods.PodSpec"]["properties"]
    assert spec["restartPolicy"]["enum"] == ["Always", "OnFailure", "Never"]
    assert set(spec["schedulingGroup"]["properties"]) == {"podGroupName"}
    spread = spec["topologySpreadConstraints"]
    assert spread["x-kubernetes-patch-merge-key"] == "topologyKey"
    assert spread["items"]["properties"]["maxSkew"]["format"] == "int32"


def undescribed(schema: Any, path: str) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    for name, below in schema.get("properties", {}).items():
        if not below.get("description"):
            yield f"{path}.{name}"
        yield from undescribed(below, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        yield from undescribed(schema.get(name), path)


@pytest.mark.parametrize("document", ["v2", "v3"])
def test_every_record_and_field_is_explained(document: str) -> None:
    kinds = served_resources(upstream=True)
    bodies = openapi.documents(kinds) if document == "v3" else {"": openapi.v2_json(kinds)}
    for body in bodies.values():
        found = orjson.loads(body)
        schemas = found.get("definitions") or found.get("components", {}).get("schemas", {})
        for name, schema in schemas.items():
            assert schema.get("description"), name
            assert list(undescribed(schema, name)) == []


def test_one_document_has_each_kind_of_a_group_with_two_names_apart() -> None:
    definitions = orjson.loads(openapi.v2_json(served_resources(upstream=True)))["definitions"]
    named = {name: schema[GVK] for name, schema in definitions.items() if GVK in schema}
    assert named["io.orch.authorization.SubjectAccessReview"][0]["group"].endswith(".orch.io")
    assert named["io.k8s.authorization.SubjectAccessReview"][0]["group"].endswith(".k8s.io")
    spec = definitions["io.k8s.authorization.SubjectAccessReviewSpec"]["properties"]
    assert "resourceAttributes" in spec


def test_an_alias_describes_its_kinds_with_the_names_it_takes() -> None:
    path = "/openapi/v3/apis/authorization.k8s.io/v1"
    document = orjson.loads(openapi.documents(served_resources(upstream=True))[path])
    schemas = document["components"]["schemas"]
    spec = schemas["io.orch.authorization.SelfSubjectAccessReviewSpec"]["properties"]
    assert set(spec) == {"resourceAttributes", "nonResourceAttributes"}
    kind = schemas["io.orch.authorization.SelfSubjectAccessReview"][GVK][0]
    assert kind["group"] == "authorization.k8s.io"


def test_every_path_that_is_served_is_there() -> None:
    paths = orjson.loads(openapi.documents(RESOURCES)["/openapi/v3/api/v1"])["paths"]
    one = "/api/v1/namespaces/{namespace}/pods/{name}"
    assert set(paths[one]) == {"get", "put", "patch", "delete", "parameters"}
    assert set(paths["/api/v1/pods"]) == {"get", "parameters"}
    for subresource in ("status", "log", "eviction", "binding"):
        assert f"{one}/{subresource}" in paths
    assert set(paths[f"{one}/ephemeralcontainers"]) == {"get", "put", "patch", "parameters"}
    assert "/api/v1/nodes/{name}/proxy/{path}" in paths
    reviews = orjson.loads(
        openapi.documents(RESOURCES)["/openapi/v3/apis/authorization.orch.io/v1"]
    )["paths"]
    assert set(reviews["/apis/authorization.orch.io/v1/subjectaccessreviews"]) == {
        "post", "parameters",
    }  # fmt: skip


def test_the_older_form_in_json_has_the_same_paths() -> None:
    document = orjson.loads(openapi.v2_json(RESOURCES))
    newer = {
        path
        for body in openapi.documents(RESOURCES).values()
        for path in orjson.loads(body)["paths"]
        if path.startswith("/")
    }
    assert set(document["paths"]) == newer
    for reference in references(document):
        assert reference.removeprefix("#/definitions/") in document["definitions"]
    patch = document["paths"]["/api/v1/nodes/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" in patch["consumes"]
    assert {"name": "body", "in": "body", "required": True, "schema": {"type": "array", "items": {
        "type": "object"}}} in patch["parameters"]  # fmt: skip


@pytest.mark.parametrize("document", ["v2", "v3"])
def test_every_parameter_of_a_query_says_what_it_does(document: str) -> None:
    bodies = openapi.documents(RESOURCES) if document == "v3" else {"": openapi.v2_json(RESOURCES)}
    said = {
        parameter["name"]: parameter.get("description", "")
        for path, body in bodies.items()
        if path != "/openapi/v3"
        for item in orjson.loads(body)["paths"].values()
        for operation in item.values()
        if isinstance(operation, dict)
        for parameter in operation["parameters"]
        if parameter["in"] == "query"
    }
    assert [name for name, text in said.items() if not text.endswith(".")] == []
    assert "list of returned objects" in said["fieldSelector"]
    assert said["watch"].startswith("Watch for changes to the described resources")
