"""Who owns which fields of an object after an update or an apply; pure.

An update gives its manager the fields it changes, and takes them from all others. An apply gives
its manager exactly the fields that are applied: it shares them with those who have the same values,
conflicts with those who have others, and removes what it applied before and nobody else owns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from orch.wire.managed import field_sets, typed
from orch.wire.managed.field_sets import NOTHING, FieldSet, difference, intersection, union
from orch.wire.managed.merging import Changes, compare, merge
from orch.wire.managed.typed import Type

Key = TypeVar("Key")
Filter = Callable[[FieldSet], FieldSet]  # leaves out fields that a request cannot set


class Owned(NamedTuple):
    """The fields of one manager; `applied`, or else updated."""

    fields: FieldSet
    applied: bool


Owners = Mapping[Key, Owned]


class ConflictError(Exception):
    """An apply would change fields of others: the fields by their manager."""

    def __init__(self, conflicts: Mapping[Any, FieldSet]) -> None:
        super().__init__("the applied fields have other owners")
        self.conflicts = conflicts


def keep_all(fields: FieldSet) -> FieldSet:
    """A filter that leaves nothing out."""
    return fields


def excluding(fields: FieldSet) -> Filter:
    """A filter that leaves out these elements with all that is inside."""
    return lambda found: field_sets.without(found, fields)


def including(*patterns: tuple[str, ...]) -> Filter:
    """A filter that leaves nothing but what is at or below one of the paths, where "*" stands for
    any element, or on the way to it.
    """

    def kept(found: FieldSet, wanted: list[tuple[str, ...]]) -> FieldSet:
        result = {}
        for name, below in found.items():
            rests = [path[1:] for path in wanted if path[0] in ("*", name)]
            if not rests or name == field_sets.SELF:
                continue
            whole = not all(rests)
            inside = field_sets.children(below)
            inside = inside if whole else kept(inside, rests)
            left = field_sets.node(inside, member=field_sets.is_member(below))
            if left is not None:
                result[name] = left
        return result

    return lambda found: kept(found, list(patterns))


def update(
    kind: Type, owners: Owners[Key], old: Any, new: Any, manager: Key, leave: Filter = keep_all
) -> dict[Key, Owned]:
    """The owners after `manager` changed the object. ValueError for an element of a list that
    cannot be told from others.
    """
    changes = _filtered(compare(kind, old, new), leave)
    result = _without_lost(owners, changes, manager)
    before = owners[manager].fields if manager in owners else NOTHING
    fields = union(union(difference(before, changes.removed), changes.modified), changes.added)
    fields = leave(fields)
    if fields:
        result[manager] = Owned(fields, applied=False)
    else:
        result.pop(manager, None)
    return result


class Applied(NamedTuple):
    """The merged object, which shares parts with those given, and its owners."""

    value: Any
    owners: dict[Any, Owned]


def apply(
    kind: Type,
    owners: Owners[Key],
    live: Any,
    applied: Any,
    manager: Key,
    *,
    force: bool = False,
    leave: Filter = keep_all,
) -> Applied:
    """ConflictError unless forced; ValueError for an element of a list that cannot be told from
    others.
    """
    after = {
        other: owned._replace(fields=typed.reconciled(kind, owned.fields))
        for other, owned in owners.items()
    }
    last = after.pop(manager, Owned(NOTHING, applied=True)).fields
    after[manager] = Owned(leave(typed.fields_of(kind, applied)), applied=True)
    value = merge(kind, live, applied)
    if difference(last, after[manager].fields):
        value = _pruned(kind, value, last, after)
    changes = _filtered(compare(kind, live, value), leave)
    if not force:
        _refuse_conflicts(after, changes, manager)
    return Applied(value, _without_lost(after, changes, manager))


def _filtered(changes: Changes, leave: Filter) -> Changes:
    return changes if leave is keep_all else Changes(*map(leave, changes))


def _refuse_conflicts(owners: Owners[Key], changes: Changes, manager: Key) -> None:
    changed = union(changes.modified, changes.added)
    conflicts = {
        other: found
        for other, owned in owners.items()
        if other != manager and (found := intersection(owned.fields, changed))
    }
    if conflicts:
        raise ConflictError(conflicts)


def _without_lost(owners: Owners[Key], changes: Changes, manager: Key) -> dict[Key, Owned]:
    """The owners after all but this manager lost what changed; those with nothing left are gone."""
    result = {}
    changed = union(changes.modified, changes.added)
    for other, owned in owners.items():
        fields = owned.fields
        if other != manager:
            lost = intersection(fields, changed)
            fields = difference(fields, lost) if lost else fields
            fields = difference(fields, changes.removed) if changes.removed else fields
        if fields:
            result[other] = owned if fields is owned.fields else owned._replace(fields=fields)
    return result


def _pruned(kind: Type, merged: Any, last: FieldSet, owners: Owners[Key]) -> Any:
    """The merged value without what its manager applied last time and does not apply now, unless
    another owns it.
    """

    def named(fields: FieldSet) -> FieldSet:
        return typed.with_named_fields(kind, fields)

    merged_fields = named(typed.fields_of(kind, merged))
    last_named = named(last)
    pruned = typed.removed(kind, merged, last_named)
    owned: FieldSet = NOTHING
    for other in owners.values():
        owned = union(owned, other.fields)
    kept = union(named(typed.fields_of(kind, pruned)), named(owned))
    pruned = typed.removed(kind, merged, difference(merged_fields, kept))
    gone = difference(merged_fields, named(typed.fields_of(kind, pruned)))
    return typed.removed(kind, merged, intersection(gone, last_named))
