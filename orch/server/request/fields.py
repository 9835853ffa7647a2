"""Unknown and duplicate fields in the objects that clients send; pure.

The known fields are made from the records and what they leave out (`orch.wire.records.fields`). A
level that is None is not looked into: plain values, maps with free keys, `status`, which only its
own reporters write, and records not known completely; so a valid field of a larger record is never
called unknown.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from orch.wire.patch.patch import MAX_DEPTH
from orch.wire.records.fields import fields_beyond, shapes_of
from orch.wire.records.kinds import RESOURCES, Resource
from orch.wire.records.meta import WireModel

Known = Mapping[str, Any]  # field name → Known of the level below, or None


def known_of(model: type[WireModel]) -> Known | None:
    """The fields of a record and of its parts; None when they are not all known."""
    beyond = fields_beyond(model)
    if beyond is None:
        return None
    known: dict[str, Known | None] = dict.fromkeys(beyond)
    for name, shape in shapes_of(model).items():
        below = shape.record
        known[name] = known_of(below) if below and name != "status" else None
    return known


def name_of(resource: Resource) -> str:
    """The name of a kind here: another kind may have objects of the same."""
    return resource.api_version if resource.stored_form else resource.kind


KINDS: Mapping[str, Known] = {
    name_of(resource): known for resource in RESOURCES if (known := known_of(resource.model))
}

_OPERATION: Known = dict.fromkeys(("op", "path", "from", "value"))
_MAX_REPORTED = 100
_PATH_MAX = 1000
_NAME_MAX = 254  # of a path's names, which clients choose


def unknown_fields(kind: str, document: Mapping[str, Any]) -> list[str]:
    """One text per unknown field, in the words clients expect."""
    known = KINDS.get(kind)
    if known is None:
        return []
    if _is_known(document, known):
        return []
    found = itertools.islice(_unknown(document, known, ""), _MAX_REPORTED)
    return [f'unknown field "{path[:_PATH_MAX]}"' for path in found]


def without_added_fields(kind: str, part: str, before: Any, after: Any) -> Any:
    """A part of an object without the unknown fields that a change adds to it."""
    known = KINDS[kind][part]
    return after if known is None else _without_added(known, before, after)


def _without_added(known: Known, before: Any, after: Any) -> Any:
    if isinstance(after, list):
        rows = before if isinstance(before, list) else []
        return [
            _without_added(known, *pair)
            for pair in itertools.zip_longest(rows[: len(after)], after)
        ]
    if not isinstance(after, dict):
        return after
    held = before if isinstance(before, dict) else {}
    kept = {}
    for name, item in after.items():
        if name in known or name in held:
            below = known.get(name)
            kept[name] = item if below is None else _without_added(below, held.get(name), item)
    return kept


def of_operations(body: bytes, duplicates: list[str]) -> list[str]:
    """Those of the operations of a JSON patch, and these duplicates, as such."""
    found = itertools.islice(_unknown(orjson.loads(body), _OPERATION, ""), _MAX_REPORTED)
    unknown = [f'unknown field "{path[:_PATH_MAX]}"' for path in found]
    return [f"json patch {text}" for text in unknown + duplicates]


def duplicate_fields(body: bytes) -> list[str]:
    """One text per duplicate field in a JSON body; the parser keeps the last."""
    try:
        # Objects become tuples of their fields, which lists never are.
        fields = json.loads(body, object_pairs_hook=tuple, parse_int=float)
        found = itertools.islice(_twice(fields, ()), _MAX_REPORTED)
        paths = dict.fromkeys(map(_shown, found))
    except RecursionError:
        return []  # nested too deeply: refused elsewhere
    return [f'duplicate field "{path}"' for path in paths]


def _twice(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The parts of the paths: names may be long, and most paths are never shown."""
    if len(path) > MAX_DEPTH:
        return  # refused elsewhere
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, tuple | list):
                yield from _twice(item, (*path, f"[{index}]"))
    elif isinstance(value, tuple):
        seen: set[str] = set()
        for name, item in value:
            if name in seen:
                yield (*path, f".{name}")
            seen.add(name)
            if isinstance(item, tuple | list):
                yield from _twice(item, (*path, f".{name}"))


def _shown(path: tuple[str, ...]) -> str:
    return "".join(part[:_NAME_MAX] for part in path).removeprefix(".")


def _is_known(value: Any, known: Known) -> bool:
    """Whether there is nothing to report, as is usual; cheaper than collecting paths."""
    if isinstance(value, list):
        return all(_is_known(item, known) for item in value)
    if not isinstance(value, dict):
        return True
    if not known.keys() >= value.keys():
        return False
    for name, item in value.items():
        below = known[name]
        if below is not None and not _is_known(item, below):
            return False
    return True


def _unknown(value: Any, known: Known, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, known, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            at = f"{path}.{name}" if path else name
            if name not in known:
                yield at
            elif (below := known[name]) is not None:
                yield from _unknown(item, below, at)
