from __future__ import annotations

from typing import Any

import orjson
from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

from orch.server.discovery import openapi
from orch.wire.records.kinds import RESOURCES
from tests.orch.server.customresources.widgets import define, definition, version
from tests.orch.server.harness import Api

GVK = "x-kubernetes-group-version-kind"


def fields(message: bytes) -> list[tuple[int, bytes]]:
    unknown = UnknownFieldSet(Empty.FromString(message))
    return [(field.field_number, field.data) for field in unknown]


def one(message: bytes, *path: int) -> bytes:
    for number in path:
        message = next(value for found, value in fields(message) if found == number)
    return message


def test_every_kind_has_a_patch_with_field_validation_and_dry_run() -> None:
    document = openapi.v2_protobuf(RESOURCES)
    assert one(document, 1) == b"2.0"
    found = set()
    for number, named_path in fields(one(document, 8)):
        assert number == 2
        patch = one(named_path, 2, 8)
        queries = [one(inner, 1, 2, 3) for number, inner in fields(patch) if number == 8]
        assert [one(query, 2) for query in queries] == [b"query"] * 2
        assert [one(query, 4) for query in queries] == [b"fieldValidation", b"dryRun"]
        extension = one(patch, 13)
        assert one(extension, 1) == GVK.encode()
        found.add(one(extension, 2, 2).decode())
    assert "group: ''\nkind: Pod\nversion: v1\n" in found
    assert "group: 'coordination.orch.io'\nkind: Lease\nversion: v1\n" in found
    assert len(found) == len(RESOURCES)


def definitions(document: bytes) -> dict[str, bytes]:
    return {one(named, 1).decode(): one(named, 2) for _, named in fields(one(document, 9))}


def properties(schema: bytes) -> dict[str, bytes]:
    return {one(named, 1).decode(): one(named, 2) for _, named in fields(one(schema, 25))}


def extensions(schema: bytes) -> dict[str, Any]:
    found = [inner for number, inner in fields(schema) if number == 31]
    return {one(inner, 1).decode(): orjson.loads(one(inner, 2, 2)) for inner in found}


def test_kinds_are_found_and_explained() -> None:
    known = definitions(openapi.v2_protobuf(RESOURCES))
    pod = known["io.orch.pods.Pod"]
    assert extensions(pod)[GVK] == [{"group": "", "version": "v1", "kind": "Pod"}]
    spec = properties(pod)["spec"]
    assert one(spec, 1) == b"#/definitions/io.orch.pods.PodSpec"  # no allOf
    assert one(spec, 4) == b"What is wanted."
    containers = properties(known["io.orch.pods.PodSpec"])["containers"]
    assert one(containers, 22, 1) == b"array"
    assert one(containers, 23, 1, 1) == b"#/definitions/io.orch.pods.Container"
    assert extensions(containers)["x-kubernetes-patch-merge-key"] == "name"
    labels = properties(known["io.orch.meta.ObjectMeta"])["labels"]
    assert one(labels, 21, 1, 22, 1) == b"string"
    port = properties(known["io.orch.handlers.HTTPGetAction"])["port"]
    assert (one(port, 22, 1), one(port, 2)) == (b"string", b"int-or-string")  # no oneOf
    taint = known["io.orch.core.Taint"]
    assert [text for number, text in fields(taint) if number == 19] == [b"key", b"effect"]


async def test_older_clients_refuse_nothing_that_fits_a_kind_of_users(api: Api) -> None:
    # K:apiextensions-apiserver/pkg/controller/openapi/builder, ToStructuralOpenAPIV2
    await define(api, definition("widgets", version()))
    answer = await api.call("GET", "/openapi/v2", accept=openapi.V2_PROTOBUF)
    spec = properties(properties(definitions(answer.body)["com.example.v1.Widget"])["spec"])
    assert fields(spec["free"]) == fields(spec["port"]) == []  # anything
    assert one(spec["size"], 22, 1) == b"integer"
    assert set(properties(one(spec["parts"], 23, 1))) == {"name", "count"}
