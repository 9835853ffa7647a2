"""Types, as far as merging objects needs them, and values read by them; pure.

A type says of which forms a value may be: plain, list or object. A list is atomic, or its elements
are told apart: by key fields, or, without any, by their values (a set). An object is atomic, or its
fields are separate. What is atomic has one owner and is replaced whole. Nothing that is given is
changed; results share parts with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal

from orch.wire.managed import field_sets
from orch.wire.managed.field_sets import NOTHING, FieldSet, children, field_element, node
from orch.wire.patch.patch import check_depth, type_name

Scalar = Literal["numeric", "string", "boolean", "untyped"]
_TEXTS = ("string", "untyped")  # those which a text fits


@dataclass(slots=True, eq=False)
class ListType:
    """`keys` are the fields that tell the elements apart; () for a set. `atomic`: nothing does."""

    element: Type
    atomic: bool = True
    keys: tuple[str, ...] = ()


@dataclass(slots=True, eq=False)
class MapType:
    """`fields` are the named ones, `element` is the type of all others (None: there are none);
    `defaults` are the values that fields have where they are missing.
    """

    fields: dict[str, Type] = field(default_factory=dict)
    element: Type | None = None
    atomic: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def of(self, name: str) -> Type:
        """The type of a field; of one that is not declared as well."""
        return self.fields.get(name) or self.element or UNKNOWN

    @property
    def holds_scalars(self) -> bool:
        """Whether it is a map of scalars, as the widest are: there is no need to look at each."""
        element = self.element
        return not self.fields and element is not None and element.is_scalar


@dataclass(slots=True, eq=False)
class Type:
    """A type may be part of itself, so its parts can be set later."""

    scalar: Scalar | None = None
    list: ListType | None = None
    map: MapType | None = None

    @property
    def is_scalar(self) -> bool:
        return self.scalar is not None and self.list is None and self.map is None


SCALAR = Type(scalar="untyped")
# Of what is not described: fields are separate, lists are atomic, everything in them is.
ATOMIC = Type(scalar="untyped")
ATOMIC.list = ListType(ATOMIC)
ATOMIC.map = MapType(element=ATOMIC, atomic=True)
UNKNOWN = Type(scalar="untyped", list=ListType(ATOMIC))
UNKNOWN.map = MapType(element=UNKNOWN)


def record(
    fields: Mapping[str, Type],
    *,
    element: Type | None = UNKNOWN,
    atomic: bool = False,
    defaults: Mapping[str, Any] | None = None,
) -> Type:
    return Type(map=MapType(dict(fields), element, atomic, defaults or {}))


def map_of(element: Type, *, atomic: bool = False) -> Type:
    return Type(map=MapType(element=element, atomic=atomic))


def list_of(element: Type, keys: Sequence[str] = ()) -> Type:
    """A list whose elements are told apart by keys, or, without keys, by their values."""
    return Type(list=ListType(element, atomic=False, keys=tuple(keys)))


def atomic_list(element: Type) -> Type:
    return Type(list=ListType(element))


class Absent(Enum):
    """There is no value; null is one."""

    ABSENT = 0


ABSENT = Absent.ABSENT


class Form(Enum):
    MAP = 0
    SCALAR = 1
    LIST = 2


def form_of(kind: Type, value: Any) -> Form:
    """How a value of this type is treated; of one that does not fit, as the first the type has."""
    if isinstance(value, dict):
        if kind.map is not None:
            return Form.MAP
    elif isinstance(value, list):
        if kind.list is not None:
            return Form.LIST
    elif value is not None and value is not ABSENT and kind.scalar is not None:
        return Form.SCALAR
    if kind.map is not None:
        return Form.MAP
    return Form.LIST if kind.scalar is None else Form.SCALAR


def elements_of(kind: ListType, values: list[Any]) -> list[str]:
    """The path element of each; ValueError names the first that has none."""
    return [_element(kind, index, value) for index, value in enumerate(values)]


def _element(kind: ListType, index: int, value: Any) -> str:
    if kind.keys:
        return field_sets.key_element(_key_fields(kind, index, value))
    if value is None or isinstance(value, dict | list):
        raise ValueError(f"element {index}: {type_name(value)} cannot be an element of a set")
    return field_sets.value_element(value)


def _key_fields(kind: ListType, index: int, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(
            f"element {index}: {type_name(value)} cannot be an element of a list with keys"
        )
    defaults = kind.element.map.defaults if kind.element.map is not None else {}
    fields = {name: value[name] for name in kind.keys if name in value}
    for name in kind.keys:
        if name not in fields and defaults.get(name) is not None:
            fields[name] = defaults[name]
    if not fields:
        raise ValueError(f"element {index}: it has none of the key fields {', '.join(kind.keys)}")
    return fields


def repeated(elements: list[str]) -> frozenset[str]:
    """The path elements that stand for several elements of a list."""
    if len(set(elements)) == len(elements):
        return frozenset()
    return frozenset(name for name, times in Counter(elements).items() if times > 1)


def fields_of(kind: Type, value: Any) -> FieldSet:
    """The fields that a value sets, as whoever applies it owns them. ValueError for an element of
    a list that cannot be told from others.
    """
    _, inside = _fields(kind, value, 0)
    return inside


def _fields(kind: Type, value: Any, depth: int) -> tuple[bool, FieldSet]:
    """Whether the value itself belongs, and what is in it."""
    form = form_of(kind, value)
    if form is Form.SCALAR:
        return True, NOTHING
    check_depth(depth)
    if form is Form.MAP and kind.map is not None:
        if kind.map.atomic:
            return True, NOTHING
        return False, _map_fields(kind.map, value, depth) if isinstance(value, dict) else NOTHING
    if kind.list is None or kind.list.atomic:
        return True, NOTHING
    return False, _list_fields(kind.list, value, depth) if isinstance(value, list) else NOTHING


def _map_fields(kind: MapType, values: dict[str, Any], depth: int) -> FieldSet:
    if kind.holds_scalars:
        return {field_element(name): NOTHING for name in values}
    result = {}
    for name, value in values.items():
        member, inside = _fields(kind.of(name), value, depth + 1)
        found = node(inside, member=member or name not in kind.fields or value in (None, {}))
        if found is not None:
            result[field_element(name)] = found
    return result


def _list_fields(kind: ListType, values: list[Any], depth: int) -> FieldSet:
    """Elements that cannot be told apart belong as one, with nothing inside."""
    elements = elements_of(kind, values)
    doubles = repeated(elements)
    result: FieldSet = {}
    for name, value in zip(elements, values, strict=True):
        inside = NOTHING if name in doubles else _fields(kind.element, value, depth + 1)[1]
        result[name] = {field_sets.SELF: NOTHING, **inside} if inside else NOTHING
    return result


def all_fields(kind: Type, value: Any, depth: int = 0) -> tuple[bool, FieldSet]:
    """Whether a value counts as one that was added or removed, and every field in it."""
    if not isinstance(value, dict | list):
        return True, NOTHING  # as most are: it has no form to look for
    form = form_of(kind, value)
    check_depth(depth)
    inside: FieldSet = {}
    if form is Form.MAP and kind.map is not None and not kind.map.atomic:
        for name, item in (value if isinstance(value, dict) else {}).items():
            _, below = all_fields(kind.map.of(name), item, depth + 1)
            inside[field_element(name)] = {field_sets.SELF: NOTHING, **below} if below else NOTHING
    elif form is Form.LIST and kind.list is not None and not kind.list.atomic:
        values = value if isinstance(value, list) else []
        elements = elements_of(kind.list, values)
        doubles = repeated(elements)
        for name, item in zip(elements, values, strict=True):
            below = (
                NOTHING if name in doubles else all_fields(kind.list.element, item, depth + 1)[1]
            )
            inside[name] = {field_sets.SELF: NOTHING, **below} if below else NOTHING
    return True, inside


def problems(kind: Type, value: Any, *, doubles: bool = False) -> Iterator[str]:
    """What does not fit its type, each with its path; `doubles`: elements may be given twice."""
    yield from _problems(kind, value, "", doubles)


def _problems(kind: Type, value: Any, path: str, doubles: bool) -> Iterator[str]:
    if value is None:
        return
    form = form_of(kind, value)
    if form is Form.SCALAR:
        if not _fits(kind, value):
            yield f"{path}: expected {kind.scalar}, got {type_name(value)}"
    elif form is Form.MAP and kind.map is not None:
        if not isinstance(value, dict):
            yield f"{path}: expected an object, got {type_name(value)}"
            return
        yield from _map_problems(kind.map, value, path, doubles)
    elif kind.list is not None:
        if not isinstance(value, list):
            yield f"{path}: expected a list, got {type_name(value)}"
            return
        yield from _list_problems(kind.list, value, path, doubles)


def _map_problems(kind: MapType, values: dict[str, Any], path: str, doubles: bool) -> Iterator[str]:
    for name, item in values.items():
        declared = kind.element is not None or name in kind.fields
        if declared and type(item) is str and kind.of(name).scalar in _TEXTS:
            continue  # as most are: it needs no path
        at = path + field_sets.shown(field_element(name))
        if declared:
            yield from _problems(kind.of(name), item, at, doubles)
        else:
            yield f"{at}: field not declared in schema"


def _fits(kind: Type, value: Any) -> bool:
    match kind.scalar:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "numeric":
            return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str | int | float)


def _list_problems(kind: ListType, values: list[Any], path: str, doubles: bool) -> Iterator[str]:
    if kind.atomic:
        elements = [f"i:{index}" for index in range(len(values))]
    else:
        try:
            elements = elements_of(kind, values)
        except ValueError as error:
            yield f"{path}: {error}"
            return
        for name in () if doubles else sorted(repeated(elements)):
            yield f"{path}: duplicate entries for key {field_sets.shown(name)}"
    for name, item in zip(elements, values, strict=True):
        yield from _problems(kind.element, item, path + field_sets.shown(name), doubles)


def removed(kind: Type, value: Any, fields: FieldSet) -> Any:
    """A value without these fields and elements; None when nothing is left of an object or list,
    and for what is atomic, which has no fields of its own.
    """
    form = form_of(kind, value)
    if form is Form.SCALAR:
        return value
    if form is Form.MAP:
        if kind.map is None or kind.map.atomic or not isinstance(value, dict):
            return None
        return _removed_fields(kind.map, value, fields)
    if kind.list is None or kind.list.atomic or not isinstance(value, list):
        return None
    return _removed_elements(kind.list, value, fields)


def _removed_fields(kind: MapType, value: dict[str, Any], fields: FieldSet) -> Any:
    result = {}
    for name, item in value.items():
        below = fields.get(field_element(name))
        if below is not None and field_sets.is_member(below):
            continue
        result[name] = removed(kind.of(name), item, below) if below else item
    return result or None


def _removed_elements(kind: ListType, values: list[Any], fields: FieldSet) -> Any:
    result = []
    for name, item in zip(elements_of(kind, values), values, strict=True):
        below = fields.get(name)
        if below is not None and field_sets.is_member(below):
            continue
        result.append(removed(kind.element, item, below) if below else item)
    return result or None


def with_named_fields(kind: Type, fields: FieldSet) -> FieldSet:
    """The set, and every named field that has members inside: `a.b` also gives `a` if `a` is a
    field of a record, and not the key of a map.
    """
    result = {}
    named = kind.map.fields if kind.map is not None else {}
    for name, below in fields.items():
        if name == field_sets.SELF:
            continue
        if not below:
            result[name] = NOTHING
            continue
        inside = with_named_fields(_inner(kind, name), children(below))
        member = field_sets.is_member(below) or (name[:2] == "f:" and name[2:] in named)
        found = node(inside, member=member)
        if found is not None:
            result[name] = found
    return result


def _inner(kind: Type, name: str) -> Type:
    if name[:2] == "f:" and kind.map is not None:
        return kind.map.of(name[2:])
    if name[:2] == "k:" and kind.list is not None:
        return kind.list.element
    return Type()


def reconciled(kind: Type, fields: FieldSet) -> FieldSet:
    """The set as it would be had the type always been this one: what has become atomic belongs
    whole to whoever owned a part of it.
    """
    result = fields
    for name, below in fields.items():
        if not below or name == field_sets.SELF:
            continue
        inside = children(below)
        if not inside:
            continue
        inner = _inner(kind, name)
        mapped, listed = inner.map, inner.list
        if mapped.atomic if mapped is not None else listed is not None and listed.atomic:
            changed: FieldSet = NOTHING
        else:
            left = reconciled(inner, inside)
            if left is inside:
                continue
            changed = {field_sets.SELF: NOTHING, **left} if field_sets.is_member(below) else left
        if result is fields:
            result = dict(fields)
        result[name] = changed
    return result
