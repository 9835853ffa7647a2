"""What a Go template may call: the functions of `text/template`, and kubectl's own two; pure."""

from __future__ import annotations

import base64
import binascii
import json
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus

from orch.ctl.gotemplate_syntax import GoTemplateError

_VERB = re.compile(r"%([-+ 0#]*\d*(?:\.\d+)?)([a-zA-Z%])")
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})


def text(value: Any) -> str:
    """A value as Go's `%v` writes it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "<nil>" if value is None else str(value)


def _print(*values: Any) -> str:
    """Blanks stand between two values of which neither is text."""
    parts = []
    for number, value in enumerate(values):
        before = values[number - 1] if number else ""
        blank = not isinstance(value, str) and not isinstance(before, str)
        parts.append((" " if blank else "") + text(value))
    return "".join(parts)


def _printf(pattern: str, *values: Any) -> str:
    left = list(values)

    def written(match: re.Match[str]) -> str:
        flags, verb = match.groups()
        if verb == "%":
            return "%"
        if not left:
            raise GoTemplateError(f"printf has no value for %{verb}")
        return _formatted(flags, verb, left.pop(0))

    shown = _VERB.sub(written, pattern)
    if left:
        raise GoTemplateError(f"printf has {len(left)} values more than its text takes")
    return shown


def _formatted(flags: str, verb: str, value: Any) -> str:
    if verb in "vst":
        return f"%{flags}s" % text(value)
    if verb == "q":
        return f"%{flags}s" % json.dumps(text(value), ensure_ascii=False)
    if verb not in "dxXofeEgG" or isinstance(value, bool) or not isinstance(value, int | float):
        raise GoTemplateError(f"printf cannot write {text(value)} as %{verb}")
    if verb in "dxXo" and isinstance(value, float):
        raise GoTemplateError(f"printf cannot write {text(value)} as %{verb}")
    return f"%{flags}{verb}" % value


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, dict) and isinstance(key, str):
            value = value.get(key)
        elif isinstance(value, list | str) and isinstance(key, int):
            if not 0 <= key < len(value):
                raise GoTemplateError(f"index: there is no element {key}, there are {len(value)}")
            value = value[key]
        else:
            raise GoTemplateError(f"index: {text(value)} has no {text(key)}")
    return value


def _slice(value: Any, *bounds: int) -> Any:
    if not isinstance(value, list | str) or len(bounds) > 2:
        raise GoTemplateError("slice takes a list or a text and at most two numbers")
    first, last = [*bounds, *(0, len(value))[len(bounds) :]]
    if not 0 <= first <= last <= len(value):
        raise GoTemplateError(f"slice: [{first}:{last}] is not within {len(value)} elements")
    return value[first:last]


def _len(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise GoTemplateError(f"len: {text(value)} has no length")
    return len(value.encode()) if isinstance(value, str) else len(value)


def _eq(first: Any, *others: Any) -> bool:
    if not others:
        raise GoTemplateError("eq needs two values")
    return any(_equal(first, other) for other in others)


def _equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    if type(one) is not type(other):
        raise GoTemplateError(f"{text(one)} and {text(other)} are of different types")
    return bool(one == other)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def ordered(one: Any, other: Any) -> bool:
        if type(one) is not type(other) or not isinstance(one, int | float | str):
            raise GoTemplateError(f"{text(one)} and {text(other)} have no order")
        return compare(one, other)

    return ordered


def _exists(value: Any, *keys: Any) -> bool:
    for key in keys:
        inside = isinstance(value, dict) and key in value
        if not inside and not (isinstance(value, list) and key in range(len(value))):
            return False
        value = value[key]
    return True


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode(errors="replace")
    except (binascii.Error, TypeError, ValueError):
        raise GoTemplateError("base64decode: the value is not base64") from None


# `and` and `or` are not here: they do not look at every value.
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "not": operator.not_,
    "eq": _eq,
    "ne": lambda one, other: not _equal(one, other),
    "lt": _ordered(operator.lt),
    "le": _ordered(operator.le),
    "gt": _ordered(operator.gt),
    "ge": _ordered(operator.ge),
    "len": _len,
    "index": _index,
    "slice": _slice,
    "print": _print,
    "println": lambda *values: " ".join(map(text, values)) + "\n",
    "printf": _printf,
    "html": lambda *values: _print(*values).translate(_HTML),
    "urlquery": lambda *values: quote_plus(_print(*values)),
    "exists": _exists,
    "base64decode": _decoded,
}
