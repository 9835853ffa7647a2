"""JSON Patch (RFC 6902) with JSON Pointer (RFC 6901): a list of operations, all or nothing.

Bounded on purpose: 10 000 operations, 3 MiB of copied data, elements of lists that make room for
others or close a gap, the depth of `patch`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orch.wire.patch.patch import PatchError, check_depth, copied, equal, type_name

MAX_OPERATIONS = 10_000
MAX_COPIED_SIZE = 3 * 2**20  # about the bytes in memory; copying the root into itself doubles it
MAX_MOVED = 10_000_000  # elements of lists, behind those that were inserted or removed
_VALUE_SIZE = 64
_CONTAINER_SIZE = 256  # an object or list of its own: to make and to drop one takes about 1 µs
_SHOWN_MAX = 200
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_BAD_ESCAPE = re.compile(r"~(?![01])")
_NEEDS_VALUE = ("add", "replace", "test")
_NEEDS_FROM = ("move", "copy")
_OPERATIONS = ("add", "remove", "replace", "move", "copy", "test")


def apply_json_patch(target: Any, operations: Any) -> Any:
    """The patched copy; PatchError names the failed operation: its number, verb and path."""
    if not isinstance(operations, list):
        raise PatchError(
            f"a JSON patch is a list of operations, not {type_name(operations)}", code=400
        )
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(
            f"the JSON patch has {len(operations)} operations, at most {MAX_OPERATIONS} are "
            "accepted: send it in parts",
            code=413,
        )
    document = _Document(copied(target))
    for number, operation in enumerate(operations):
        document.apply(number, operation)
    return copied(document.value)  # several operations may nest deeper than each alone


class _Document:
    """The copy being changed; `_place` is the current operation, for error texts."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self._copied_size = 0
        self._moved = 0
        self._place = ""

    def apply(self, number: int, operation: Any) -> None:
        self._place = f"operation {number}"
        if not isinstance(operation, Mapping):
            raise self._error(f"must be an object, not {type_name(operation)}", code=400)
        verb = operation.get("op")
        if verb not in _OPERATIONS:
            raise self._error(f"op {verb!r} is not one of {', '.join(_OPERATIONS)}", code=400)
        self._place = f"operation {number} ({verb} {str(operation.get('path'))[:_SHOWN_MAX]!r})"
        path = self._pointer(operation, "path")
        if verb in _NEEDS_VALUE and "value" not in operation:
            raise self._error("the value is missing", code=400)
        if verb in _NEEDS_FROM:
            self._transfer(verb, self._pointer(operation, "from"), path)
        elif verb == "test":
            self._test(path, operation["value"])
        else:
            self._change(verb, path, operation)

    def _error(self, why: str, code: int = 422) -> PatchError:
        return PatchError(f"the JSON patch failed at {self._place}: {why}", code=code)

    def _pointer(self, operation: Mapping[str, Any], member: str) -> list[str]:
        text = operation.get(member)
        if not isinstance(text, str):
            raise self._error(f"{member!r} must be a JSON pointer", code=400)
        if text and not text.startswith("/"):
            raise self._error(f"the JSON pointer {text!r} must begin with '/'", code=400)
        if _BAD_ESCAPE.search(text):
            raise self._error(f"in the JSON pointer {text!r}, '~' is written '~0'", code=400)
        return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]

    def _test(self, path: list[str], value: Any) -> None:
        if not equal(self._get(path), value):
            raise self._error("the value differs")

    def _change(self, verb: str, path: list[str], operation: Mapping[str, Any]) -> None:
        if verb == "remove":
            self._remove(path)
            return
        if verb == "replace":
            self._get(path)
        self._put(path, self._copied(operation["value"]), replace=verb == "replace")

    def _transfer(self, verb: str, source: list[str], path: list[str]) -> None:
        value = self._get(source)
        if verb == "move":
            if source == path:
                return
            if path[: len(source)] == source:
                raise self._error("a value cannot be moved into itself")
            self._remove(source)
        else:
            self._copied_size += _size(value)
            if self._copied_size > MAX_COPIED_SIZE:
                raise self._error(f"copies make more than {MAX_COPIED_SIZE} bytes", code=413)
            value = self._copied(value)
        self._put(path, value, replace=False)

    def _copied(self, value: Any) -> Any:
        try:
            return copied(value)
        except PatchError as error:
            raise self._error(str(error)) from None

    def _get(self, path: list[str]) -> Any:
        value = self.value
        for part in path:
            value = self._child(value, part)
        return value

    def _child(self, container: Any, part: str) -> Any:
        if isinstance(container, dict) and part in container:
            return container[part]
        if isinstance(container, list):
            return container[self._index(part, len(container) - 1)]
        if isinstance(container, dict):
            raise self._error(f"there is no {part!r}")
        raise self._error(f"{part!r} is a path into {type_name(container)}")

    def _index(self, part: str, highest: int) -> int:
        if not _INDEX.fullmatch(part) or int(part) > highest:
            raise self._error(f"{part!r} is not an index of a list whose last is {highest}")
        return int(part)

    def _put(self, path: list[str], value: Any, *, replace: bool) -> None:
        if not path:
            self.value = value
            return
        container, part = self._get(path[:-1]), path[-1]
        if isinstance(container, dict):
            container[part] = value
        elif not isinstance(container, list):
            raise self._error(f"{part!r} cannot be set in {type_name(container)}")
        elif replace:
            container[self._index(part, len(container) - 1)] = value
        else:
            place = len(container) if part == "-" else self._index(part, len(container))
            self._move(len(container) - place)
            container.insert(place, value)

    def _remove(self, path: list[str]) -> None:
        if not path:
            raise self._error("the whole document cannot be removed")
        container, part = self._get(path[:-1]), path[-1]
        self._child(container, part)
        if isinstance(container, list):
            self._move(len(container) - int(part))
            del container[int(part)]
        else:
            del container[part]

    def _move(self, elements: int) -> None:
        """Count the elements of a list that get another place."""
        self._moved += elements
        if self._moved > MAX_MOVED:
            text = f"more than {MAX_MOVED} elements of lists have been moved: change the list from"
            raise self._error(f"{text} its end, or replace it", code=413)


def _size(value: Any, depth: int = 0) -> int:
    """Roughly the bytes of a value in memory."""
    if not isinstance(value, dict | list):
        return _VALUE_SIZE + (len(value) if isinstance(value, str) else 0)
    check_depth(depth)
    size = _CONTAINER_SIZE + (sum(map(len, value)) if isinstance(value, dict) else 0)
    items = value.values() if isinstance(value, dict) else value
    return size + sum(_size(item, depth + 1) for item in items)
