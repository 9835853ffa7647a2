"""The OpenAPI documents: v3 per group and version, and v2 for older clients; pure.

v3 and the JSON form of v2 are complete: every path, and the schemas of every record. The protobuf
form of v2 has every schema, and of paths what old clients need to trust the server's own
validation and dry run: a PATCH of each kind with these parameters (reference/apiserver.md §1.3);
its field numbers are those of gnostic's `OpenAPIv2.proto`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import orjson

from orch.server.discovery.openapi_paths import paths_of
from orch.server.discovery.openapi_schemas import GVK, PRESERVE, Schemas
from orch.wire.names import VERSION
from orch.wire.records.fields import INT_OR_STRING
from orch.wire.records.kinds import Resource

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_TITLE = "orch"
_SCOPE = "{namespace}"
_EITHER = "x-kubernetes-int-or-string"
_TEXTS = {"$ref": 1, "format": 2, "description": 4}
_REQUIRED, _ADDITIONAL, _TYPE, _ITEMS, _PROPERTIES, _EXTENSION = 19, 21, 22, 23, 25, 31


def documents(resources: tuple[Resource, ...], more: tuple[Resource, ...] = ()) -> dict[str, bytes]:
    """`/openapi/v3`, and the document of each group version below it, as JSON by path. `more` are
    kinds that come and go, of other groups.
    """
    bodies = _by_root(resources) | _bodies(more)
    index = {
        root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={_hash(body)}"}
        for root, body in bodies.items()
    }
    result = {f"/openapi/v3/{root}": body for root, body in bodies.items()}
    return {"/openapi/v3": orjson.dumps({"paths": index}), **result}


def _bodies(resources: Sequence[Resource]) -> dict[str, bytes]:
    by_root: dict[str, list[Resource]] = {}
    for resource in resources:
        root = f"apis/{resource.group}/{resource.version}" if resource.group else "api/v1"
        by_root.setdefault(root, []).append(resource)
    return {root: _v3(members) for root, members in by_root.items()}


_by_root = cache(_bodies)


def _v3(resources: Sequence[Resource]) -> bytes:
    schemas = Schemas("#/components/schemas/")
    paths = dict(pair for resource in resources for pair in paths_of(resource, schemas))
    components = {"schemas": schemas.components}
    document = {"openapi": "3.0.0", "info": _info(), "paths": paths, "components": components}
    return orjson.dumps(document)


def v2_json(resources: tuple[Resource, ...], more: tuple[Resource, ...] = ()) -> bytes:
    """The same as v2, with its own forms of definitions, bodies and answers."""
    head = orjson.dumps({"swagger": "2.0", "info": _info()})
    parts = zip(_parts_of_fixed(resources), _v2_parts(more), strict=True)
    paths, definitions = (_joined(*both) for both in parts)
    return head[:-1] + b',"paths":' + paths + b',"definitions":' + definitions + b"}"


def _joined(left: bytes, right: bytes) -> bytes:
    """Two JSON objects as one; names of the left one are first."""
    return left if right == b"{}" else left[:-1] + b"," + right[1:]


def _v2_parts(resources: tuple[Resource, ...]) -> tuple[bytes, bytes]:
    """Paths and definitions."""
    schemas = Schemas("#/definitions/", all_groups=True)
    paths = {}
    for resource in resources:
        for path, item in paths_of(resource, schemas):
            paths[path] = {name: _older(value) for name, value in item.items()}
    return orjson.dumps(paths), orjson.dumps(schemas.components)


_parts_of_fixed = cache(_v2_parts)


def _older(value: Any) -> Any:
    """An operation, or the parameters of a path, in the form of v2."""
    if isinstance(value, list):
        return [_older_parameter(item) for item in value]
    operation = dict(value)
    parameters = [_older_parameter(item) for item in operation.get("parameters", ())]
    body = operation.pop("requestBody", None)
    if body:
        operation["consumes"] = list(body["content"])
        (schema, *_) = (media["schema"] for media in body["content"].values())
        required = bool(body.get("required"))
        parameters.append({"name": "body", "in": "body", "required": required, "schema": schema})
    operation["parameters"] = parameters
    operation["responses"] = {
        code: _older_answer(answer) for code, answer in operation["responses"].items()
    }
    operation["produces"] = ["application/json"]
    return operation


def _older_parameter(parameter: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in parameter.items() if name != "schema"}
    return {**rest, **parameter["schema"]}


def _older_answer(answer: dict[str, Any]) -> dict[str, Any]:
    (content, *_) = answer["content"].values()
    return {"description": answer["description"], "schema": content["schema"]}


def _info() -> dict[str, str]:
    return {"title": _TITLE, "version": VERSION}


def etag_of(body: bytes) -> str:
    return f'"{_hash(body)}"'


def _hash(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest()[:32].upper()


def v2_protobuf(resources: tuple[Resource, ...]) -> bytes:
    """The same as a gnostic `Document` message; of paths, a PATCH of each kind."""
    info = _bytes(1, _TITLE.encode()) + _bytes(2, VERSION.encode())
    paths = b"".join(_bytes(2, _named_path(resource)) for resource in resources)
    schemas = Schemas("#/definitions/", all_groups=True)
    for resource in resources:
        reference = schemas.of_kind(resource)["$ref"]
        if "list" in resource.verbs:
            schemas.of_list(resource)
        if resource.schema is not None:
            name = reference.rpartition("/")[2]
            schemas.components[name] = _loosened(schemas.components[name])
    definitions = _named(schemas.components)
    return _bytes(1, b"2.0") + _bytes(2, info) + _bytes(8, paths) + _bytes(9, definitions)


def _named(schemas: Mapping[str, Any]) -> bytes:
    """`Definitions` or `Properties`, which look the same."""
    named = (
        _bytes(1, name.encode()) + _bytes(2, _schema(schema)) for name, schema in schemas.items()
    )
    return b"".join(_bytes(1, one) for one in named)


def _schema(schema: Mapping[str, Any]) -> bytes:
    """A `Schema` message of one of the forms that `Schemas` makes."""
    schema = _plain(schema)
    message = b"".join(
        _bytes(number, schema[name].encode()) for name, number in _TEXTS.items() if name in schema
    )
    message += _strings(_REQUIRED, schema.get("required", ()))
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        message += _bytes(_ADDITIONAL, _bytes(1, _schema(values)))
    if "type" in schema:
        message += _bytes(_TYPE, _bytes(1, schema["type"].encode()))
    if isinstance(items := schema.get("items"), Mapping):
        message += _bytes(_ITEMS, _bytes(1, _schema(items)))
    if properties := schema.get("properties"):
        message += _bytes(_PROPERTIES, _named(properties))
    return message + b"".join(
        _bytes(_EXTENSION, _bytes(1, name.encode()) + _bytes(2, _bytes(2, orjson.dumps(value))))
        for name, value in schema.items()
        if name.startswith("x-kubernetes-")  # their values are YAML, which JSON is
    )


def _loosened(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema of users, without what would have these clients refuse objects that fit it."""
    if any(schema.get(word) for word in (PRESERVE, _EITHER, "nullable")):
        return {name: schema[name] for name in ("description", GVK) if name in schema}
    loose = dict(schema)
    for name in ("items", "additionalProperties"):
        if isinstance(below := schema.get(name), Mapping):
            loose[name] = _loosened(below)
    if "properties" in schema:
        parts = schema["properties"].items()
        loose["properties"] = {name: _loosened(below) for name, below in parts}
    return loose


def _plain(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without `allOf` and `oneOf`, which these clients do not read."""
    if len(schema.get("allOf", ())) == 1 and "$ref" in schema["allOf"][0]:
        return {**schema, **schema["allOf"][0]}
    if "oneOf" in schema and "properties" not in schema:
        kept = {"format": INT_OR_STRING} if schema.get("format") == INT_OR_STRING else {}
        text = {"description": schema["description"]} if "description" in schema else {}
        return {"type": "string", **kept, **text}
    return schema


def _strings(number: int, texts: Iterable[str]) -> bytes:
    return b"".join(_bytes(number, text.encode()) for text in texts)


def _named_path(resource: Resource) -> bytes:
    path = resource.path(_SCOPE if resource.namespaced else "", "{name}")
    return _bytes(1, path.encode()) + _bytes(2, _bytes(8, _patch(resource)))


def _patch(resource: Resource) -> bytes:
    parameters = b"".join(_bytes(8, _query(name)) for name in (b"fieldValidation", b"dryRun"))
    gvk = f"group: {resource.group!r}\nkind: {resource.kind}\nversion: {resource.version}\n"
    extension = _bytes(1, GVK.encode()) + _bytes(2, _bytes(2, gvk.encode()))
    operation_id = f"patch{resource.version.title()}{resource.kind}".encode()
    return _bytes(5, operation_id) + parameters + _bytes(9, b"") + _bytes(13, extension)


def _query(name: bytes) -> bytes:
    return _bytes(
        1, _bytes(2, _bytes(3, _bytes(2, b"query") + _bytes(4, name) + _bytes(6, b"string")))
    )


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
