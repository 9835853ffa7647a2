"""The schemas of OpenAPI documents, made from the records; pure.

A record becomes one component that others refer to. Fields that records leave out (see
`orch.wire.records.fields`) have no type: they are kept, but their form is unknown here. Lists carry
the merge keys that `kubectl apply` needs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from orch.wire.managed import kinds
from orch.wire.managed.kinds import Listed
from orch.wire.patch import merge_keys
from orch.wire.patch.strategic_patch import Schema as Merge
from orch.wire.records import aliases
from orch.wire.records.fields import ANY, INT_OR_STRING, Shape, fields_beyond, shapes_of
from orch.wire.records.kinds import Resource
from orch.wire.records.meta import INT32, ApiObject, ObjectMeta, WireModel

GVK = "x-kubernetes-group-version-kind"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
MAP_TYPE = "x-kubernetes-map-type"
Json = dict[str, Any]

_FORMATS = {"integer": "int64", "number": "double"}


class Schemas:
    """Components, made on demand; references begin with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self.components: Json = {}
        self._prefix = prefix

    def of_kind(self, resource: Resource) -> Json:
        """A reference to an object of the kind."""
        if resource.schema is not None:
            return self._described(resource, resource.schema)
        merge = merge_keys.schema_of(resource.api_version, resource.kind)
        renamed = aliases.REVIEW_FIELDS if resource.group in aliases.OWN_BY_UPSTREAM else {}
        reference = self._record(resource.model, merge, renamed)
        self.components[name_of(resource.model)][GVK] = [gvk_of(resource)]
        return reference

    def of_list(self, resource: Resource) -> Json:
        """A reference to a list of the kind."""
        name = _name_of_list(resource)
        self.components[name] = {
            "type": "object",
            "description": f"A list of objects of the kind {resource.kind}.",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"$ref": self._reference("io.orch.meta.ListMeta")},
                "items": {"type": "array", "items": self.of_kind(resource)},
            },
            GVK: [{**gvk_of(resource), "kind": resource.list_kind}],
        }
        self.components.setdefault("io.orch.meta.ListMeta", _LIST_META)
        return {"$ref": self._reference(name)}

    def _described(self, resource: Resource, schema: Mapping[str, Any]) -> Json:
        """A kind that has a schema already; its metadata are those of every object."""
        fields = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            **(schema.get("properties") or {}),
            "metadata": {"allOf": [self._record(ObjectMeta, Merge())]},
        }
        name = _name_of_kind(resource)
        self.components[name] = {**schema, "properties": fields, GVK: [gvk_of(resource)]}
        return {"$ref": self._reference(name)}

    def plain(self, name: str, schema: Json) -> Json:
        """A reference to a handwritten component."""
        self.components.setdefault(name, schema)
        return {"$ref": self._reference(name)}

    def _reference(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def _record(
        self, model: type[WireModel], merge: Merge, renamed: Mapping[str, str] | None = None
    ) -> Json:
        name = name_of(model)
        if name not in self.components:
            self.components[name] = {}  # a record may contain itself
            self.components[name] = self._component(model, merge, renamed or {})
        return {"$ref": self._reference(name)}

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
            properties.setdefault(name, self._beyond(merging))
        component: Json = {"type": "object", "properties": properties}
        if kinds.is_atomic(model):
            component[MAP_TYPE] = "atomic"
        required = [n for n, field in model.model_fields.items() if field.is_required()]
        if required:
            component["required"] = required
        if beyond is None:
            component[PRESERVE] = True
        text = model.__doc__ if "__doc__" in vars(model) else None
        if text and model is not ApiObject:
            component["description"] = inspect.cleandoc(text)
        return component

    def _field(
        self, shape: Shape, merge: Merge, renamed: Mapping[str, str], merging: Json | None = None
    ) -> Json:
        if shape.kind == "record" and shape.model:
            return {"allOf": [self._record(shape.model, merge, renamed)]}
        if shape.kind == "array":
            items = shape.item or ANY
            if items.kind == "record" and items.model:
                described: Json = self._record(items.model, merge, renamed)
            else:
                described = self._field(items, Merge(), renamed)
            return {"type": "array", "items": described, **(merging or _ATOMIC)}
        if shape.kind == "map":
            values = self._field(shape.item or ANY, Merge(), renamed)
            return {"type": "object", "additionalProperties": values}
        return _scalar(shape)

    def _beyond(self, merging: Json) -> Json:
        if merging != _ATOMIC:
            return {"type": "array", "items": {PRESERVE: True}, **merging}
        return {PRESERVE: True}


def name_of(model: type[WireModel]) -> str:
    """The component's name: its group and the name of the record."""
    return f"io.orch.{model.__module__.rpartition('.')[2]}.{model.__name__}"


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
        "resourceVersion": {"type": "string"},
        "continue": {"type": "string"},
        "remainingItemCount": {"type": "integer", "format": "int64"},
    },
}
