"""Types written as data, in the form that the reference's own cases have them."""

from __future__ import annotations

from typing import Any

from orch.wire.managed.typed import ATOMIC, UNKNOWN, ListType, MapType, Type

Written = dict[str, Any]

_BUILT_IN = {"__untyped_deduced_": UNKNOWN, "__untyped_atomic_": ATOMIC}


class WrittenTypes:
    """The named types of one document; `of` makes them, each once."""

    def __init__(self, written: list[Written]) -> None:
        self._written = {entry["name"]: entry for entry in written}
        self._made: dict[str, Type] = {}

    def of(self, name: str) -> Type:
        if name in _BUILT_IN:
            return _BUILT_IN[name]
        if name not in self._made:
            self._made[name] = Type()
            self._fill(self._made[name], self._written[name])
        return self._made[name]

    def _referred(self, reference: Written | None) -> Type | None:
        if not reference:
            return None
        name, relation = reference.get("namedType"), reference.get("elementRelationship")
        if name is None:
            made = Type()
            self._fill(made, reference)
            return made if relation is None else _related(made, relation)
        if relation is None:
            return self.of(name)
        return _related(self.of(name), relation)

    def _fill(self, made: Type, written: Written) -> None:
        made.scalar = written.get("scalar")
        if "list" in written:
            element = self._referred(written["list"]["elementType"]) or UNKNOWN
            atomic = written["list"].get("elementRelationship") == "atomic"
            made.list = ListType(element, atomic, tuple(written["list"].get("keys") or ()))
        if "map" in written:
            entry = written["map"] or {}
            fields = entry.get("fields") or []
            made.map = MapType(
                {field["name"]: self._referred(field["type"]) or Type() for field in fields},
                self._referred(entry.get("elementType")),
                entry.get("elementRelationship") == "atomic",
                {field["name"]: field["default"] for field in fields if "default" in field},
            )


def _related(made: Type, relation: str) -> Type:
    """A named type with another relation of its elements, for one field."""
    listed, mapped = made.list, made.map
    if listed is not None:
        listed = ListType(listed.element, relation == "atomic", listed.keys)
    if mapped is not None:
        mapped = MapType(mapped.fields, mapped.element, relation == "atomic", mapped.defaults)
    return Type(made.scalar, listed, mapped)
