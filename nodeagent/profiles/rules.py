"""Finds errors in a rule of a seccomp profile: names, action, errno, arguments; pure.

Must not know other rules or the profile's top level (`lint`).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

ERROR, WARNING = "error", "warning"
NOTIFY = "SCMP_ACT_NOTIFY"
ALLOWING = frozenset({"SCMP_ACT_ALLOW", "SCMP_ACT_LOG", NOTIFY, "SCMP_ACT_TRACE"})
DENYING = frozenset(
    {
        "SCMP_ACT_ERRNO",
        "SCMP_ACT_KILL",
        "SCMP_ACT_KILL_PROCESS",
        "SCMP_ACT_KILL_THREAD",
        "SCMP_ACT_TRAP",
    }
)
ACTIONS = ALLOWING | DENYING
MAX_ERRNO = 4095  # the kernel reduces larger numbers to this
_KERNEL_NOTIFY = "SECCOMP_RET_USER_NOTIF"
_WITH_ERRNO = {"SCMP_ACT_ERRNO", "SCMP_ACT_TRACE"}
_OPERATORS = {"NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"}
_NEVER_NOTIFIED = "write"  # the runtime writes to its listener under the filter
_RULE = {"names": list, "action": str, "errnoRet": int, "args": list}
_ARGUMENT = dict.fromkeys(("index", "value", "valueTwo", "op"), object)
_MISPLACED = {"name": "write it as a list, `names`"}
_WORDS = {str: "a string", int: "an integer", list: "a list"}
_UINT64 = range(2**64)
_ARGUMENTS = 6  # of a system call


@dataclass(frozen=True, slots=True)
class LintFinding:
    """`where` is the place in the profile, "" for all of it."""

    level: str
    where: str
    message: str


@dataclass(frozen=True, slots=True)
class Rule:
    """The valid part of a rule; `conditional` when it checks arguments."""

    where: str
    names: tuple[str, ...]
    action: str
    conditional: bool


def error(where: str, message: str) -> LintFinding:
    return LintFinding(ERROR, where, message)


def warning(where: str, message: str) -> LintFinding:
    return LintFinding(WARNING, where, message)


def known_as(action: str) -> str:
    """The action for a name, which may be the kernel's."""
    return NOTIFY if action == _KERNEL_NOTIFY else action


def rule_findings(
    value: object, where: str, names: Mapping[str, frozenset[str]], architecture: str
) -> tuple[list[LintFinding], Rule | None]:
    """Findings in an element of `syscalls`, and the rule if it has an action."""
    if not isinstance(value, dict):
        return [error(where, f"it must be an object, not {shown(value)}")], None
    found = list(
        field_findings(value, _RULE, where, required=("names", "action"), misplaced=_MISPLACED)
    )
    listed, action = value.get("names"), value.get("action")
    valid_names: tuple[str, ...] = ()
    if isinstance(listed, list):
        valid_names = tuple(name for name in listed if isinstance(name, str))
        found += _name_findings(listed, f"{where}.names", names, architecture)
    if isinstance(action, str):
        found += action_findings(action, f"{where}.action")
        if known_as(action) == NOTIFY and _NEVER_NOTIFIED in valid_names:
            text = f"{NOTIFY} cannot be the action for {_NEVER_NOTIFIED!r}"
            found.append(error(f"{where}.action", text))
    found += errno_findings(value, "errnoRet", f"{where}.errnoRet", action)
    arguments = value.get("args")
    for index, argument in enumerate(arguments if isinstance(arguments, list) else ()):
        found += _argument_findings(argument, f"{where}.args[{index}]")
    if not isinstance(action, str):
        return found, None
    return found, Rule(where, valid_names, action, bool(arguments))


def action_findings(action: str, where: str) -> Iterator[LintFinding]:
    if action == _KERNEL_NOTIFY:
        yield warning(where, f"{action} is the kernel's name; runtimes accept only {NOTIFY}")
    elif action not in ACTIONS:
        yield error(where, f"unknown action {action!r}{_nearest(action, ACTIONS)}")


def errno_findings(
    record: Mapping[str, Any], key: str, where: str, action: object
) -> Iterator[LintFinding]:
    """About the errno that an action returns; wrong types are reported elsewhere."""
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        return
    if not 0 <= value <= MAX_ERRNO:
        yield error(where, f"{value} is not an error number: the range is 0 to {MAX_ERRNO}")
    if isinstance(action, str) and action in ACTIONS and action not in _WITH_ERRNO:
        yield warning(where, f"{action} returns no error number, so this has no effect")


def field_findings(
    record: Mapping[str, Any],
    kinds: Mapping[str, type],
    where: str,
    *,
    required: Iterable[str],
    misplaced: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[LintFinding]:
    """Unknown, missing and mistyped fields of an object; `kinds` maps fields to their types.

    `object` is any type. `misplaced` maps known mistakes to what to say about them.
    """
    prefix = f"{where}." if where else ""
    for key, value in record.items():
        if key in misplaced:
            yield error(f"{prefix}{key}", misplaced[key])
        elif key not in kinds:
            yield error(f"{prefix}{key}", f"unknown key; the keys are {', '.join(kinds)}")
        elif kinds[key] is not object and not _has_type(value, kinds[key]):
            yield error(f"{prefix}{key}", f"it must be {_WORDS[kinds[key]]}, not {shown(value)}")
    for key in required:
        if key not in record:
            yield error(f"{prefix}{key}", "it is missing")


def _name_findings(
    listed: list[object], where: str, names: Mapping[str, frozenset[str]], architecture: str
) -> Iterator[LintFinding]:
    if not listed:
        yield error(where, "it is empty: the rule applies to no system call")
    seen: set[str] = set()
    for index, name in enumerate(listed):
        place = f"{where}[{index}]"
        if not isinstance(name, str):
            yield error(place, f"a name must be a string, not {shown(name)}")
        elif not name.strip():
            yield error(place, "the name is empty")
        elif name in seen:
            yield error(place, f"{name!r} is in this list twice")
        elif name not in names:
            text = f"unknown system call {name!r}{_nearest(name, names)}"
            yield error(place, text)
        elif architecture and architecture not in names[name]:
            yield warning(place, f"{architecture} has no system call {name!r}")
        if isinstance(name, str):
            seen.add(name)


def _argument_findings(value: object, where: str) -> Iterator[LintFinding]:
    if not isinstance(value, dict):
        yield error(where, f"it must be an object, not {shown(value)}")
        return
    yield from field_findings(value, _ARGUMENT, where, required=("index", "value", "op"))
    for key, limits in (("index", range(_ARGUMENTS)), ("value", _UINT64), ("valueTwo", _UINT64)):
        number = value.get(key, 0)
        if not _has_type(number, int) or number not in limits:
            text = f"it must be an integer from 0 to {limits[-1]}, not {shown(number)}"
            yield error(f"{where}.{key}", text)
    operator = value.get("op", "SCMP_CMP_EQ")
    if not isinstance(operator, str) or operator.removeprefix("SCMP_CMP_") not in _OPERATORS:
        listed = ", ".join(f"SCMP_CMP_{name}" for name in sorted(_OPERATORS))
        text = f"unknown operator {shown(operator)}; the operators are {listed}"
        yield error(f"{where}.op", text)
    elif not operator.startswith("SCMP_CMP_"):
        yield error(f"{where}.op", f"write it as SCMP_CMP_{operator}")


def _has_type(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _nearest(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def shown(value: object) -> str:
    return json.dumps(value)[:60]
