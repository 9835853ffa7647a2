"""Values that typed clients cannot decode, beside those that a record refuses; pure.

One such object breaks every list that it is in. A record checks the types of its own fields; looked
at here are the sizes of its integers and the types of the fields that it only keeps
(`orch.wire.records.fields`). A document that fits, nearly all, is walked once and as far as there
is something to look at; paths are made for the others alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple, Protocol

from orch.wire import quantity
from orch.wire.records.fields import INT_OR_STRING, QUANTITY, Shape, kept_of, shapes_of
from orch.wire.records.meta import WireModel

_MAX_REPORTED = 100
_INT32, _INT64 = 1 << 31, 1 << 63
_SCALARS: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "integer": (int,), "number": (int, float),
    INT_OR_STRING: (int, str), QUANTITY: (int, float, str),
}  # fmt: skip
_WANTED = {INT_OR_STRING: "integer or string", QUANTITY: "string or number"}


class Misfit(NamedTuple):
    """`wanted` is the type that the field has; "" where only the value is wrong, for `why`."""

    path: str
    value: Any
    wanted: str
    why: str = ""


class _Check(Protocol):
    """None fits everywhere: it is as good as nothing."""

    def fits(self, value: Any) -> bool: ...

    def misfits(self, value: Any, path: str) -> Iterator[Misfit]: ...


def misfits(model: type[WireModel], document: Mapping[str, Any]) -> list[Misfit]:
    """What does not fit in the JSON data of a record, 100 at most."""
    check = _check_of(model, whole=False)
    if check is None or check.fits(document):
        return []
    return [*itertools.islice(check.misfits(document, ""), _MAX_REPORTED)]


class _Scalar:
    def __init__(self, kind: str, *, is_int32: bool) -> None:
        self._types = _SCALARS[kind]
        self._kind = kind
        self._bits, self._beyond = (32, _INT32) if is_int32 else (64, _INT64)

    def fits(self, value: Any) -> bool:
        kind = type(value)
        if kind not in self._types:
            return value is None
        if self._kind == QUANTITY:
            return _is_quantity(value)
        return kind is not int or -self._beyond <= value < self._beyond

    def misfits(self, value: Any, path: str) -> Iterator[Misfit]:
        if self.fits(value):
            return
        if type(value) not in self._types:
            yield Misfit(path, value, _WANTED.get(self._kind, self._kind))
        elif self._kind == QUANTITY:
            yield Misfit(path, value, "", "must be an amount like 500m or 1Gi")
        else:
            yield Misfit(path, value, "", f"must fit into {self._bits} bits")


def _is_quantity(value: str | float) -> bool:
    try:
        quantity.to_milli(value)
    except ValueError:
        return False
    return True


class _Record:
    def __init__(self, fields: Mapping[str, _Check]) -> None:
        self._fields = fields

    def fits(self, value: Any) -> bool:
        if type(value) is not dict:
            return value is None
        fields = self._fields
        return all(fields[name].fits(value[name]) for name in value if name in fields)

    def misfits(self, value: Any, path: str) -> Iterator[Misfit]:
        if type(value) is dict:
            for name in (name for name in value if name in self._fields):
                yield from self._fields[name].misfits(value[name], f"{path}.{name}".lstrip("."))
        elif value is not None:
            yield Misfit(path, value, "object")


class _Items:
    def __init__(self, item: _Check) -> None:
        self._item = item

    def fits(self, value: Any) -> bool:
        if type(value) is not list:
            return value is None
        return all(map(self._item.fits, value))

    def misfits(self, value: Any, path: str) -> Iterator[Misfit]:
        if type(value) is list:
            for index, item in enumerate(value):
                yield from self._item.misfits(item, f"{path}[{index}]")
        elif value is not None:
            yield Misfit(path, value, "array")


class _Values:
    def __init__(self, item: _Check) -> None:
        self._item = item

    def fits(self, value: Any) -> bool:
        if type(value) is not dict:
            return value is None
        return all(map(self._item.fits, value.values()))

    def misfits(self, value: Any, path: str) -> Iterator[Misfit]:
        if type(value) is dict:
            for name, item in value.items():
                yield from self._item.misfits(item, f"{path}[{name}]")
        elif value is not None:
            yield Misfit(path, value, "object")


@cache
def _check_of(model: type[WireModel], *, whole: bool) -> _Check | None:
    """`whole`: no record has checked the types of the fields. None: there is nothing to look at."""
    return _record(shapes_of(model), kept_of(model), whole=whole)


def _record(own: Mapping[str, Shape], kept: Mapping[str, Shape], *, whole: bool) -> _Check | None:
    found = {name: _check(shape, whole=whole) for name, shape in own.items()}
    found |= {name: _check(shape, whole=True) for name, shape in kept.items()}
    fields = {name: check for name, check in found.items() if check is not None}
    return _Record(fields) if fields or whole else None


def _check(shape: Shape, *, whole: bool) -> _Check | None:
    if shape.kind == "record":
        if shape.model is not None:
            return _check_of(shape.model, whole=whole)
        return _record({}, shape.fields or {}, whole=whole)
    if shape.kind in ("array", "map"):
        item = _check(shape.item, whole=whole) if shape.item else None
        if item is None:
            return None
        return _Items(item) if shape.kind == "array" else _Values(item)
    if whole or shape.kind == "integer" or shape.is_int32:
        return _Scalar(shape.kind, is_int32=shape.is_int32) if shape.kind in _SCALARS else None
    return None
