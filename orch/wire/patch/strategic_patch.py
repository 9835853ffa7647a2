"""Strategic merge patch: merge patch that merges lists by key where the schema says so.

Directives (`$patch`, `$retainKeys`, `$setElementOrder/…`, `$deleteFromPrimitiveList/…`) and the
order of merged lists follow apimachinery `util/strategicpatch/patch.go`; the schemas of kinds are
in `merge_keys`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orch.wire.patch.patch import PatchError, check_depth, copied, count_values, type_name

Identity = tuple[bool, Any]  # true is not 1: the flag says whether the value is a boolean


def identity(element: Any, merge_key: str) -> Identity:
    """The value that identifies an element: itself, or with a merge key the value under that key.

    ValueError when that value is not plain; an object without the key has the value None.
    """
    value = element
    if merge_key:
        if not isinstance(element, dict):
            raise ValueError("an element is not an object")
        value = element.get(merge_key)
    if isinstance(value, dict | list):
        raise ValueError("an element is identified by an object or a list, not by a plain value")
    return isinstance(value, bool), value


def identities(elements: Sequence[Any], merge_key: str) -> list[Identity]:
    return [identity(element, merge_key) for element in elements]


def arranged(
    merged: Sequence[Any], wanted: Sequence[Identity], before: Sequence[Identity], merge_key: str
) -> list[Any]:
    """The merged elements in order; `wanted` is the patch's order, `before` the original one.

    As in `normalizeElementOrder`: elements of the patch are in its order, the others in theirs, and
    both are interleaved by their original positions.
    """
    wanted_rank, before_rank = _ranks(wanted), _ranks(before)
    pairs = [(identity(element, merge_key), element) for element in merged]
    named = deque(
        sorted((p for p in pairs if p[0] in wanted_rank), key=lambda p: wanted_rank[p[0]])
    )
    others = deque(pair for pair in pairs if pair[0] not in wanted_rank)
    result = []
    while named and others:
        other, name = before_rank.get(others[0][0]), before_rank.get(named[0][0])
        other_first = other is not None and name is not None and other < name
        result.append((others if other_first else named).popleft()[1])
    return result + [element for _, element in (*named, *others)]


def is_in_order(part: Sequence[Identity], whole: Sequence[Identity]) -> bool:
    """Whether `part` is a subsequence of `whole`."""
    rest = iter(whole)
    return all(any(element == other for other in rest) for element in part)


def _ranks(elements: Sequence[Identity]) -> dict[Identity, int]:
    ranks: dict[Identity, int] = {}
    for place, element in enumerate(elements):
        ranks.setdefault(element, place)
    return ranks


PATCH = "$patch"
RETAIN_KEYS = "$retainKeys"
ORDER_PREFIX = "$setElementOrder/"
DELETE_PREFIX = "$deleteFromPrimitiveList/"
MAX_MERGED_AGAIN = 200_000  # values that are copied because of elements given more than once

Json = Mapping[str, Any]
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """How a field merges; `fields` describe the object's fields or those of the list's elements.

    `merge_key` makes a list of objects merge by that field, `merge_set` a list of plain values
    merge as a set; a list with neither is replaced.
    """

    fields: Mapping[str, Schema] = field(default_factory=dict)
    merge_key: str = ""
    merge_set: bool = False

    @property
    def merges_lists(self) -> bool:
        return self.merge_set or bool(self.merge_key)

    def of(self, name: str) -> Schema:
        return self.fields.get(name, _PLAIN)


_PLAIN = Schema()


def apply_strategic_patch(target: Any, patch: Any, schema: Schema) -> Any:
    """The patched copy of an object; PatchError (code 400) names the field that cannot merge."""
    if not isinstance(target, dict) or not isinstance(patch, dict):
        raise PatchError(
            f"a strategic merge patch merges two objects, not {type_name(patch)} into "
            f"{type_name(target)}",
            code=400,
        )
    repeated = _repeated(patch, schema)
    if repeated and repeated * (count_values(target) + count_values(patch)) > MAX_MERGED_AGAIN:
        raise PatchError(
            f"the strategic merge patch changes elements of lists {repeated} times more than once:"
            " give each element once",
            code=413,
        )
    return _merged_object(target, patch, schema, ())


def _repeated(patch: Any, schema: Schema) -> int:
    """The elements of the patch that change an element changed before, at most so many."""
    if isinstance(patch, dict):
        return sum(_repeated(patch[name], inner) for name, inner in schema.fields.items()
                   if name in patch)  # fmt: skip
    if not isinstance(patch, list) or not schema.merge_key:
        return 0
    elements = [element for element in patch if isinstance(element, dict)]
    keys = (element.get(schema.merge_key) for element in elements)
    named = [key for key in keys if not isinstance(key, dict | list)]
    below = sum(_repeated(element, schema) for element in elements) if schema.fields else 0
    return len(named) - len(set(named)) + below


def _error(path: Path, why: str) -> PatchError:
    place = ".".join(path) or "the root"
    return PatchError(f"the strategic merge patch failed at {place}: {why}", code=400)


def _merged_object(old: Json, patch: Json, schema: Schema, path: Path) -> dict[str, Any]:
    check_depth(len(path))
    directive = patch.get(PATCH, "merge")
    if directive == "replace":
        return _new_object(patch, len(path))
    if directive == "delete":
        return {}
    if directive != "merge":
        raise _error(path, f"{PATCH} is {directive!r}, use replace, delete or merge")
    retained = _without_deleted_values(_retained(old, patch, path), patch, path)
    orders = _values_of(ORDER_PREFIX, patch, path)
    result: dict[str, Any] = {}
    for name, value in retained.items():
        inner = schema.of(name)
        order = orders.get(name) if inner.merges_lists else None
        if name not in patch and order is None:
            result[name] = copied(value, len(path) + 1)
        elif (new := patch.get(name, [])) is not None:
            result[name] = _merged_field(value, new, order, inner, (*path, name))
    added = {name: value for name, value in patch.items() if name not in retained}
    return {**result, **_new_object(added, len(path))}


def _merged_field(old: Any, new: Any, order: list[Any] | None, schema: Schema, path: Path) -> Any:
    if isinstance(old, dict) and isinstance(new, dict):
        return _merged_object(old, new, schema, path)
    if not isinstance(old, list) or not isinstance(new, list):
        return _new_value(new, len(path))
    try:
        return _merged_list(old, new, order, schema, path)
    except ValueError as error:
        raise _error(path, str(error)) from None


def _merged_list(
    old: list[Any], new: list[Any], order: list[Any] | None, schema: Schema, path: Path
) -> list[Any]:
    if not schema.merges_lists:
        return _new_list(new, len(path))
    key = schema.merge_key
    before = identities(old, key)
    if key:
        old, new = _without_special_elements(old, new, key, path)
        merged = _merged_elements(old, new, schema, path)
    else:
        merged = _distinct([*old, *new])
    wanted = identities(new, key)
    if order is not None:
        ordered = identities(order, key)
        if not is_in_order(wanted, ordered):
            raise ValueError(
                f"the elements are not in the order that {ORDER_PREFIX}{path[-1]} gives"
            )
        wanted = ordered
    return arranged(merged, wanted, before, key)


def _without_special_elements(
    old: list[Any], new: list[Any], key: str, path: Path
) -> tuple[list[Any], list[Any]]:
    """Both lists after applying and removing the patch's elements that are directives."""
    plain, deleted, replaces = [], set(), False
    for element in new:
        found = identity(element, key)
        directive = element.get(PATCH)
        if key not in element and directive != "replace":
            raise ValueError(f"an element of the patch has no {key!r}, the key this list merges by")
        if PATCH not in element:
            plain.append(element)
        elif directive == "delete":
            deleted.add(found)
        elif directive == "replace":
            replaces = True
        else:
            raise ValueError(f"{PATCH} of an element is {directive!r}, use replace or delete")
    if replaces:
        return [], plain
    return [e for e in old if identity(e, key) not in deleted], plain


def _merged_elements(old: list[Any], new: list[Any], schema: Schema, path: Path) -> list[Any]:
    """The old elements, the first of each identity merged with the patch's, then the new ones."""
    result = [copied(element, len(path)) for element in old]
    places: dict[Identity, int] = {}
    for place, element in enumerate(old):
        places.setdefault(identity(element, schema.merge_key), place)
    for patch in new:
        found = identity(patch, schema.merge_key)
        place = places.setdefault(found, len(result))
        if place == len(result):
            result.append(_new_value(patch, len(path)))
        else:
            inside = (*path, str(found[1]))
            result[place] = _merged_object(result[place], patch, schema, inside)
    return result


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list({identity(value, ""): value for value in values}.values())


def _retained(old: Json, patch: Json, path: Path) -> Json:
    """What `$retainKeys` leaves of an object; everything when it is absent."""
    keys = patch.get(RETAIN_KEYS)
    if RETAIN_KEYS not in patch:
        return old
    if not isinstance(keys, list):
        raise _error(path, f"{RETAIN_KEYS} must be a list of field names")
    kept = {key for key in keys if isinstance(key, str)}
    for name, value in patch.items():
        if value is not None and name not in kept and not _is_directive(name):
            raise _error(path, f"{name!r} is set but not listed in {RETAIN_KEYS}")
    return {name: value for name, value in old.items() if name in kept}


def _without_deleted_values(old: Json, patch: Json, path: Path) -> Json:
    deletions = _values_of(DELETE_PREFIX, patch, path)
    if not deletions:
        return old
    result = dict(old)
    for name, values in deletions.items():
        gone = {identity(value, "") for value in values if _is_plain(value)}
        if isinstance(old.get(name), list):
            result[name] = [
                value
                for value in old[name]
                if not (_is_plain(value) and identity(value, "") in gone)
            ]
    return result


def _is_plain(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _values_of(prefix: str, patch: Json, path: Path) -> dict[str, list[Any]]:
    """The lists of the directives `<prefix><field>`, by field."""
    found = {name[len(prefix) :]: value for name, value in patch.items() if name.startswith(prefix)}
    for name, value in found.items():
        if not isinstance(value, list):
            raise _error(path, f"{prefix}{name} must be a list")
    return found


def _is_directive(name: str) -> bool:
    return name in (PATCH, RETAIN_KEYS) or name.startswith((ORDER_PREFIX, DELETE_PREFIX))


def _new_value(value: Any, depth: int) -> Any:
    """A value of the patch where the object has none: without directives and nulls."""
    if isinstance(value, dict):
        return {} if value.get(PATCH) == "delete" else _new_object(value, depth)
    return _new_list(value, depth) if isinstance(value, list) else value


def _new_object(value: Json, depth: int) -> dict[str, Any]:
    check_depth(depth)
    return {
        name: _new_value(item, depth + 1)
        for name, item in value.items()
        if item is not None and not _is_directive(name)
    }


def _new_list(values: Sequence[Any], depth: int) -> list[Any]:
    check_depth(depth)
    return [_new_value(v, depth + 1) for v in values if not (isinstance(v, dict) and PATCH in v)]
