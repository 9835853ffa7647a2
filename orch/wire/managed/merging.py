"""Two values of a type: what changed from one to the other, and one laid over the other; pure.

Lists whose elements are told apart are merged element by element. Elements that are given twice
count as one that is replaced whole.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, NamedTuple

from orch.wire.managed import field_sets
from orch.wire.managed.field_sets import NOTHING, FieldSet, field_element, union
from orch.wire.managed.typed import (
    ABSENT,
    Form,
    ListType,
    MapType,
    Type,
    all_fields,
    elements_of,
    form_of,
    repeated,
)
from orch.wire.patch.patch import check_depth


class Changes(NamedTuple):
    """No field is in two of the sets; new and gone values are there with all their fields."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet


class _Found(NamedTuple):
    """The changes below an element; of each kind, whether the element itself is among them."""

    here: str = ""
    inside: Changes = Changes(NOTHING, NOTHING, NOTHING)


_SAME = _Found()


def compare(kind: Type, old: Any, new: Any) -> Changes:
    """ValueError for an element of a list that cannot be told from others."""
    return _compare(kind, old, new, 0).inside


def _compare(kind: Type, old: Any, new: Any, depth: int) -> _Found:
    if old == new:
        return _SAME
    if new is ABSENT:
        return _Found("removed", Changes(all_fields(kind, old, depth)[1], NOTHING, NOTHING))
    if old is ABSENT:
        return _Found("added", Changes(NOTHING, NOTHING, all_fields(kind, new, depth)[1]))
    check_depth(depth)
    before, after = form_of(kind, old), form_of(kind, new)
    found = _compare_as(kind, after, old, new, depth)
    if before is after:
        return found
    other = _compare_as(kind, before, old, new, depth)
    inside = (union(*pair) for pair in zip(found.inside, other.inside, strict=True))
    return _Found(found.here or other.here, Changes(*inside))


def _compare_as(kind: Type, form: Form, old: Any, new: Any, depth: int) -> _Found:
    if form is Form.MAP and kind.map is not None and not kind.map.atomic:
        left = old if isinstance(old, dict) else {}
        right = new if isinstance(new, dict) else {}
        if left or right:
            return _Found("", _compare_maps(kind.map, left, right, depth + 1))
    elif form is Form.LIST and kind.list is not None and not kind.list.atomic:
        before = old if isinstance(old, list) else []
        after = new if isinstance(new, list) else []
        if before or after:
            return _Found("", _compare_lists(kind.list, before, after, depth + 1))
    return _Found("modified")


def _compare_maps(kind: MapType, old: dict[str, Any], new: dict[str, Any], depth: int) -> Changes:
    changes = Changes({}, {}, {})
    # Says that 1 is true, as everywhere on the way to storage.
    names = [name for name, value in new.items() if old.get(name, ABSENT) != value]
    names += old.keys() - new.keys()
    for name in names:
        found = _compare(kind.of(name), old.get(name, ABSENT), new.get(name, ABSENT), depth)
        _note(changes, field_element(name), found)
    return changes


def _compare_lists(kind: ListType, old: list[Any], new: list[Any], depth: int) -> Changes:
    changes = Changes({}, {}, {})
    before, after = _by_element(kind, old), _by_element(kind, new)
    for name in (*before, *(name for name in after if name not in before)):
        left, right = before.get(name, []), after.get(name, [])
        if len(left) < 2 and len(right) < 2:
            left_item, right_item = (items[0] if items else ABSENT for items in (left, right))
            if left_item != right_item:
                _note(changes, name, _compare(kind.element, left_item, right_item, depth))
        elif len(left) > 1 and len(right) > 1:
            if left != right:
                _note(changes, name, _Found("modified"))
        elif len(left) > 1:
            if right:
                _note(changes, name, _compare(kind.element, ABSENT, right[0], depth))
            _note(changes, name, _Found("removed"))
        else:
            if left:
                _note(changes, name, _compare(kind.element, left[0], ABSENT, depth))
            _note(changes, name, _Found("added"))
    return changes


def _by_element(kind: ListType, values: list[Any]) -> dict[str, list[Any]]:
    result = defaultdict(list)
    for name, value in zip(elements_of(kind, values), values, strict=True):
        result[name].append(value)
    return result


def _note(changes: Changes, name: str, found: _Found) -> None:
    for kind, whole, inside in zip(Changes._fields, changes, found.inside, strict=True):
        if not inside and found.here != kind:
            continue
        below = field_sets.node(inside, member=found.here == kind)
        if below is not None:
            whole[name] = (
                union({name: below}, {name: whole[name]})[name] if name in whole else below
            )


def merge(kind: Type, live: Any, applied: Any) -> Any:
    """The live value with the applied one laid over it; nothing is removed.

    Where the applied value changes a list, its elements are in the order of that value.
    ValueError for an element of a list that cannot be told from others.
    """
    return _merged(kind, live, applied, 0)


def _merged(kind: Type, live: Any, applied: Any, depth: int) -> Any:
    if applied is ABSENT:
        return live
    if live is ABSENT:
        return applied
    check_depth(depth)
    form = form_of(kind, applied)
    if form is Form.MAP and kind.map is not None and not kind.map.atomic:
        left = live if isinstance(live, dict) else {}
        right = applied if isinstance(applied, dict) else {}
        if left or right:
            return _merged_maps(kind.map, left, right, depth + 1)
    elif form is Form.LIST and kind.list is not None and not kind.list.atomic:
        before = live if isinstance(live, list) else []
        after = applied if isinstance(applied, list) else []
        if before or after:
            return _merged_lists(kind.list, before, after, depth + 1)
    return applied


def _merged_maps(
    kind: MapType, live: dict[str, Any], applied: dict[str, Any], depth: int
) -> dict[str, Any]:
    result = {**live, **applied}
    if not kind.holds_scalars:
        for name, value in applied.items():
            result[name] = _merged(kind.of(name), live.get(name, ABSENT), value, depth)
    return result


def _merged_lists(kind: ListType, live: list[Any], applied: list[Any], depth: int) -> list[Any]:
    """Elements of both are in the order of the applied list; those of the live one alone keep their
    places among them.
    """
    names, wanted = elements_of(kind, live), elements_of(kind, applied)
    doubles = repeated(names)
    values = dict(zip(wanted, applied, strict=True))
    known = {name: value for name, value in zip(names, live, strict=True) if name not in doubles}
    shared = deque(name for name in values if name in known or name in doubles)
    coming = deque(values)
    done = set()
    result: list[Any] = []
    place = 0
    while place < len(names) or coming:
        if place < len(names):
            mine = names[place]
            if mine not in values:
                result.append(live[place])
                place += 1
                continue
            if coming and mine != coming[0] and shared and mine != shared[0]:
                place += 1  # its turn is later
                continue
            place += not coming or mine == coming[0] or mine in done
        if coming:
            name = coming.popleft()
            done.add(name)
            result.append(_merged(kind.element, known.get(name, ABSENT), values[name], depth))
            if shared and shared[0] == name:
                shared.popleft()
    return result
