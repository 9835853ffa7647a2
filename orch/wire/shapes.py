"""What the fields of a record may hold, read from the annotations of its class; pure.

One reading for all who describe records to others: field validation and the OpenAPI documents.
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from orch.wire.meta import WireModel

_SCALARS: dict[Any, str] = {str: "string", int: "integer", bool: "boolean", float: "number"}
INT_OR_STRING = "int-or-string"


@dataclass(frozen=True, slots=True)
class Shape:
    """`kind`: a JSON type, "map" (of `item`), "record" (`model`), INT_OR_STRING or "any"."""

    kind: str
    item: Shape | None = None
    model: type[WireModel] | None = None
    choices: tuple[str, ...] = ()

    @property
    def record(self) -> type[WireModel] | None:
        """The record at the bottom of it: its own, or that of a list's items."""
        return self.item.record if self.kind == "array" and self.item else self.model


ANY = Shape("any")


@cache
def shapes_of(model: type[WireModel]) -> dict[str, Shape]:
    """Every field of the class by its name on the wire."""
    hints = get_type_hints(model, include_extras=True)
    return {field.alias or name: _shape(hints[name]) for name, field in model.model_fields.items()}


def _shape(annotation: Any) -> Shape:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _shape(arguments[0])
    if origin in (Union, types.UnionType):
        return _union([one for one in arguments if one is not type(None)])
    if origin is Literal:
        return Shape("string", choices=arguments)
    if origin is list:
        return Shape("array", _shape(arguments[0]))
    if origin is dict:
        return Shape("map", _shape(arguments[1]))
    if annotation in _SCALARS:
        return Shape(_SCALARS[annotation])
    if isinstance(annotation, type) and issubclass(annotation, WireModel):
        return Shape("record", model=annotation)
    return ANY


def _union(members: list[Any]) -> Shape:
    if len(members) == 1:
        return _shape(members[0])
    return Shape(INT_OR_STRING) if set(members) == {int, str} else ANY
