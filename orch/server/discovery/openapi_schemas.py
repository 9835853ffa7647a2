"""The schemas of OpenAPI documents, made from the records; pure.

A record becomes one component that others refer to; fields that records leave out (see
`orch.wire.records.fields`) have the types that are known of them. Lists carry the merge keys that
`kubectl apply` needs. What `kubectl explain` says of records and fields is in `explained.txt`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from orch.wire.managed import kinds
from orch.wire.managed.kinds import Listed
from orch.wire.patch import merge_keys
from orch.wire.patch.strategic_patch import Schema as Merge
from orch.wire.records import aliases
from orch.wire.records.fields import (
    ANY,
    INT_OR_STRING,
    QUANTITY,
    Shape,
    fields_beyond,
    kept_of,
    shapes_of,
)
from orch.wire.records.kinds import Resource
from orch.wire.records.meta import INT32, ObjectMeta, WireModel

GVK = "x-kubernetes-group-version-kind"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
MAP_TYPE = "x-kubernetes-map-type"
Json = dict[str, Any]

_KEPT = "Kept, and not acted on here."
_FORMATS = {"integer": "int64", "number": "double"}


class Schemas:
    """Components, made on demand; references begin with `prefix`. Where the kinds of all groups
    are in one document, those of the reference's groups have names of their own.
    """

    def __init__(self, prefix: str, *, all_groups: bool = False) -> None:
        self.components: Json = {}
        self._prefix = prefix
        self._all_groups = all_groups

    def of_kind(self, resource: Resource) -> Json:
        """A reference to an object of the kind."""
        if resource.schema is not None:
            return self._described(resource, resource.schema)
        merge = merge_keys.schema_of(resource.api_version, resource.kind)
        renamed = aliases.REVIEW_FIELDS if resource.group in aliases.OWN_BY_UPSTREAM else {}
        reference = self._record(resource.model, merge, renamed)
        self.components[self._name_of(resource.model, renamed)][GVK] = [gvk_of(resource)]
        return reference

    def of_list(self, resource: Resource) -> Json:
        """A reference to a list of the kind."""
        name = _name_of_list(resource)
        if self._all_groups and resource.group in aliases.OWN_BY_UPSTREAM:
            name = _theirs(name)
        self.components[name] = {
            "type": "object",
            "description": f"A list of objects of the kind {resource.kind}.",
            "required": ["items"],
            "properties": _explained(
                "",
                {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"allOf": [{"$ref": self._reference("io.orch.meta.ListMeta")}]},
                    "items": {"type": "array", "items": self.of_kind(resource)},
                },
            ),
            GVK: [{**gvk_of(resource), "kind": resource.list_kind}],
        }
        self.components.setdefault("io.orch.meta.ListMeta", _LIST_META)
        return {"$ref": self._reference(name)}

    def _described(self, resource: Resource, schema: Mapping[str, Any]) -> Json:
        """A kind that has a schema already; its metadata are those of every object."""
        own: Json = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [self._record(ObjectMeta, Merge())]},
        }
        fields = (schema.get("properties") or {}) | _explained("", own)
        name = _name_of_kind(resource)
        self.components[name] = {**schema, "properties": fields, GVK: [gvk_of(resource)]}
        return {"$ref": self._reference(name)}

    def plain(self, name: str, schema: Json) -> Json:
        """A reference to a handwritten component."""
        if name not in self.components:
            self.components[name] = _explained_part(name.rpartition(".")[2], schema)
        return {"$ref": self._reference(name)}

    def _reference(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def _record(
        self, model: type[WireModel], merge: Merge, renamed: Mapping[str, str] | None = None
    ) -> Json:
        name = self._name_of(model, renamed or {})
        if name not in self.components:
            self.components[name] = {}  # a record may contain itself
            self.components[name] = self._component(model, merge, renamed or {})
        return {"$ref": self._reference(name)}

    def _name_of(self, model: type[WireModel], renamed: Mapping[str, str]) -> str:
        name = name_of(model)
        return _theirs(name) if renamed and self._all_groups else name

    def _component(self, model: type[WireModel], merge: Merge, renamed: Mapping[str, str]) -> Json:
        own_to_theirs = {own: theirs for theirs, own in renamed.items()}
        properties = {}
        for name, shape in shapes_of(model).items():
            merging = _merging(merge.of(name), kinds.list_type(model, name))
            schema = self._field(shape, merge.of(name), renamed, merging)
            if kinds.is_atomic(model, name):
                schema[MAP_TYPE] = "atomic"
            properties[own_to_theirs.get(name, name)] = schema
        beyond = fields_beyond(model)
        for name in beyond or ():
            merging = _merging(merge.of(name), kinds.list_type(model, name))
            shape = kept_of(model).get(name, ANY)
            properties.setdefault(name, self._field(shape, merge.of(name), {}, merging))
        component: Json = {
            "type": "object", "properties": _explained(model.__name__, properties),
        }  # fmt: skip
        if kinds.is_atomic(model):
            component[MAP_TYPE] = "atomic"
        required = [n for n, field in model.model_fields.items() if field.is_required()]
        if required:
            component["required"] = required
        if beyond is None:
            component[PRESERVE] = True
        text = _texts().get(model.__name__) or model.__doc__ or ""
        component["description"] = inspect.cleandoc(text)
        return component

    def _field(
        self, shape: Shape, merge: Merge, renamed: Mapping[str, str], merging: Json | None = None
    ) -> Json:
        if shape.kind == "record" and shape.model:
            return {"allOf": [self._record(shape.model, merge, renamed)]}
        if shape.kind == "record":
            parts = {
                name: self._field(part, merge.of(name), {})
                for name, part in (shape.fields or {}).items()
            }
            return {"type": "object", "properties": _explained("", parts, _KEPT)}
        if shape.kind == "array":
            items = shape.item or ANY
            if items.kind == "record" and items.model:
                described: Json = self._record(items.model, merge, renamed)
            else:
                described = self._field(items, merge, renamed)
            return {"type": "array", "items": described, **(merging or _ATOMIC)}
        if shape.kind == "map":
            values = self._field(shape.item or ANY, Merge(), renamed)
            return {"type": "object", "additionalProperties": values}
        return _scalar(shape)


@cache
def _texts() -> Mapping[str, str]:
    text = resources.files(__package__).joinpath("explained.txt").read_text()
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return dict(line.split(": ", 1) for line in lines)


def _explained(record: str, fields: Mapping[str, Json], otherwise: str = "") -> Json:
    """The fields with what is said of them; `record` is "" for a part without a name."""
    known = _texts()
    described = {}
    for name, schema in fields.items():
        text = known.get(f"{record}.{name}") or known.get(name) or otherwise
        described[name] = {**schema, "description": text} if text else schema
    return described


def _explained_part(name: str, schema: Json) -> Json:
    """A handwritten schema with what is said of it and its parts."""
    text = {"description": _texts()[name]} if name in _texts() else {}
    if "properties" not in schema:
        return {**text, **schema}
    parts = {part: _explained_part("", below) for part, below in schema["properties"].items()}
    return {**text, **schema, "properties": _explained(name, parts)}


def name_of(model: type[WireModel]) -> str:
    """The component's name: its group and the name of the record."""
    return f"io.orch.{model.__module__.rpartition('.')[2]}.{model.__name__}"


def _theirs(name: str) -> str:
    return name.replace("io.orch.", "io.k8s.", 1)


def _name_of_kind(resource: Resource) -> str:
    if resource.schema is None:
        return name_of(resource.model)
    return _qualified(resource, resource.kind)


def _name_of_list(resource: Resource) -> str:
    if resource.schema is None:
        return f"{name_of(resource.model)}List"
    return _qualified(resource, resource.list_kind)


def _qualified(resource: Resource, kind: str) -> str:
    return ".".join((*reversed(resource.group.split(".")), resource.version, kind))


def gvk_of(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _scalar(shape: Shape) -> Json:
    if shape.kind == INT_OR_STRING:
        return {"format": INT_OR_STRING, "oneOf": [{"type": "integer"}, {"type": "string"}]}
    if shape.kind == QUANTITY:
        return {"oneOf": [{"type": "string"}, {"type": "number"}]}
    if shape is ANY or shape.kind == "any":
        return {PRESERVE: True}
    schema: Json = {"type": shape.kind}
    if shape.kind in _FORMATS:
        schema["format"] = INT32 if shape.is_int32 else _FORMATS[shape.kind]
    if shape.choices:
        schema["enum"] = list(shape.choices)
    return schema


_ATOMIC: Json = {"x-kubernetes-list-type": "atomic"}


def _merging(merge: Merge, listed: Listed) -> Json:
    """How a strategic merge patch and an apply merge a list."""
    merging: Json = {}
    if merge.merge_key:
        merging["x-kubernetes-patch-merge-key"] = merge.merge_key
    if merge.merges_lists:
        merging["x-kubernetes-patch-strategy"] = "merge"
    if listed.keys:
        keys = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(listed.keys)}
        return merging | keys
    return merging | ({"x-kubernetes-list-type": "set"} if listed.is_set else _ATOMIC)


_LIST_META: Json = {
    "type": "object",
    "description": "The version at which a list was read, and whether it continues.",
    "properties": {
        "resourceVersion": {"type": "string", "description": "The version of the list."},
        "continue": {
            "type": "string",
            "description": "Gets the next page; empty where there is none.",
        },
        "remainingItemCount": {
            "type": "integer",
            "format": "int64",
            "description": "How many objects are on pages to come, where that is known.",
        },
    },
}
