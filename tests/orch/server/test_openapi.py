from __future__ import annotations

import orjson

from orch.server import openapi, protobufwire
from orch.wire.kinds import RESOURCES

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
    for path, body in documents.items():
        for item in orjson.loads(body)["paths"].values():
            operation = item.get("patch") if path != "/openapi/v3" else None
            if operation and any(
                p["in"] == "query" and p["name"] == "fieldValidation"
                for p in operation["parameters"]
            ):
                gvk = operation[GVK]
                found.add((gvk["group"], gvk["version"], gvk["kind"]))
    assert found == {(r.group, r.version, r.kind) for r in RESOURCES}


def fields(message: memoryview) -> list[tuple[int, memoryview]]:
    return list(protobufwire._fields(message))


def one(message: memoryview, *path: int) -> memoryview:
    for number in path:
        message = next(value for found, value in fields(message) if found == number)
    return message


def test_the_older_form_says_the_same_in_gnostic_protobuf() -> None:
    document = memoryview(openapi.v2_protobuf(RESOURCES))
    assert bytes(one(document, 1)) == b"2.0"
    found = set()
    for number, named_path in fields(one(document, 8)):
        assert number == 2
        patch = one(named_path, 2, 8)
        query = one(patch, 8, 1, 2, 3)
        assert (bytes(one(query, 2)), bytes(one(query, 4))) == (b"query", b"fieldValidation")
        extension = one(patch, 13)
        assert bytes(one(extension, 1)) == GVK.encode()
        found.add(bytes(one(extension, 2, 2)).decode())
    assert "group: ''\nkind: Pod\nversion: v1\n" in found
    assert "group: 'coordination.orch.io'\nkind: Lease\nversion: v1\n" in found
    assert len(found) == len(RESOURCES)


def test_the_older_form_in_json_has_the_same_paths() -> None:
    paths = orjson.loads(openapi.v2_json(RESOURCES))["paths"]
    assert len(paths) == len(RESOURCES)
    assert "/api/v1/namespaces/{namespace}/pods/{name}" in paths
