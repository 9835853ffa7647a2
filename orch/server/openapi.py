"""OpenAPI documents as small as clients need them to trust the server's own validation; pure.

kubectl 1.29 and newer read `/openapi/v3`, older ones `/openapi/v2` in protobuf; both only look for
a PATCH of the object's kind with a `fieldValidation` parameter (reference/apiserver.md §1.3). The
field numbers of the v2 form are gnostic's. Schemas of the records are not described.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import orjson

from orch.wire.kinds import Resource
from orch.wire.version import VERSION

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TITLE = "orch"
_GVK = "x-kubernetes-group-version-kind"
_SCOPE = "{namespace}"


def documents(resources: Sequence[Resource]) -> dict[str, bytes]:
    """`/openapi/v3`, and the document of each group version below it, as JSON by path."""
    by_root: dict[str, list[Resource]] = {}
    for resource in resources:
        root = f"apis/{resource.group}/{resource.version}" if resource.group else "api/v1"
        by_root.setdefault(root, []).append(resource)
    bodies = {root: _v3(members) for root, members in by_root.items()}
    index = {
        root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={_hash(body)}"}
        for root, body in bodies.items()
    }
    result = {f"/openapi/v3/{root}": body for root, body in bodies.items()}
    return {"/openapi/v3": orjson.dumps({"paths": index}), **result}


def v2_json(resources: Sequence[Resource]) -> bytes:
    paths = {_object_path(r): {"patch": _operation(r, {"type": "string"})} for r in resources}
    return orjson.dumps(
        {"swagger": "2.0", "info": _info(), "paths": paths, "definitions": {}},
    )


def v2_protobuf(resources: Sequence[Resource]) -> bytes:
    """The same as a gnostic `Document` message."""
    info = _bytes(1, _TITLE.encode()) + _bytes(2, VERSION.encode())
    paths = b"".join(_bytes(2, _named_path(resource)) for resource in resources)
    return _bytes(1, b"2.0") + _bytes(2, info) + _bytes(8, paths) + _bytes(9, b"")


def _info() -> dict[str, str]:
    return {"title": _TITLE, "version": VERSION}


def _hash(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest()[:32].upper()


def _object_path(resource: Resource) -> str:
    return resource.path(_SCOPE if resource.namespaced else "", "{name}")


def _operation(resource: Resource, parameter_type: dict[str, Any]) -> dict[str, Any]:
    parameter = {"name": "fieldValidation", "in": "query", **parameter_type}
    return {
        "operationId": f"patch{resource.version.title()}{resource.kind}",
        "parameters": [parameter],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        _GVK: {"group": resource.group, "version": resource.version, "kind": resource.kind},
    }


def _v3(resources: Sequence[Resource]) -> bytes:
    paths = {
        _object_path(r): {"patch": _operation(r, {"schema": {"type": "string"}})} for r in resources
    }
    return orjson.dumps({"openapi": "3.0.0", "info": _info(), "paths": paths, "components": {}})


def _named_path(resource: Resource) -> bytes:
    return _bytes(1, _object_path(resource).encode()) + _bytes(2, _bytes(8, _patch(resource)))


def _patch(resource: Resource) -> bytes:
    query = _bytes(2, b"query") + _bytes(4, b"fieldValidation") + _bytes(6, b"string")
    parameter = _bytes(1, _bytes(2, _bytes(3, query)))
    gvk = f"group: {resource.group!r}\nkind: {resource.kind}\nversion: {resource.version}\n"
    extension = _bytes(1, _GVK.encode()) + _bytes(2, _bytes(2, gvk.encode()))
    operation_id = f"patch{resource.version.title()}{resource.kind}".encode()
    return _bytes(5, operation_id) + _bytes(8, parameter) + _bytes(9, b"") + _bytes(13, extension)


def _bytes(number: int, content: bytes) -> bytes:
    """One length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
