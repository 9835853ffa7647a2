"""Finds errors in a seccomp profile before a container uses it; pure.

A profile is the `seccomp` object of the OCI runtime specification (config-linux.md), as spec.md
"Seccomp profile selection" restricts it. An error keeps containers from starting or changes the
meaning of a rule; a warning needs a reader's attention. Single rules are checked in `rules`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from nodeagent.profiles.rules import (
    ALLOWING,
    DENYING,
    NOTIFY,
    LintFinding,
    Rule,
    action_findings,
    errno_findings,
    error,
    field_findings,
    known_as,
    rule_findings,
    shown,
    warning,
)

_TOP = {
    "defaultAction": str,
    "defaultErrnoRet": int,
    "architectures": list,
    "flags": list,
    "listenerPath": str,
    "listenerMetadata": str,
    "syscalls": list,
}
_OTHER_TOOLS = dict.fromkeys(
    ("archMap", "includes", "excludes", "comment"),
    "it belongs to another tool's format; runtimes ignore it",
)
_FLAGS = {
    "SECCOMP_FILTER_FLAG_TSYNC",
    "SECCOMP_FILTER_FLAG_LOG",
    "SECCOMP_FILTER_FLAG_SPEC_ALLOW",
    "SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV",
}
_START = "execve"  # called under the filter, before the container's program runs


def lint(text: bytes, names: dict[str, frozenset[str]], architecture: str) -> list[LintFinding]:
    """All findings in a profile, in its order.

    `names` maps system calls to the architectures that have them; `architecture` is the profile's.
    """
    try:
        profile = json.loads(text, object_pairs_hook=_without_duplicates)
    except _Duplicate as duplicate:
        return [error("", f"the key {duplicate.args[0]!r} is given twice")]
    except (ValueError, RecursionError) as problem:
        return [error("", f"it is not JSON: {problem}")]
    if not isinstance(profile, dict):
        return [error("", "it is not a JSON object")]
    return list(_findings(profile, names, architecture))


def _findings(
    profile: dict[str, Any], names: dict[str, frozenset[str]], architecture: str
) -> Iterator[LintFinding]:
    top_level = list(_top_findings(profile))
    yield from top_level
    default = profile.get("defaultAction")
    if isinstance(default, str):
        yield from action_findings(default, "defaultAction")
        if known_as(default) == NOTIFY:
            yield error("defaultAction", f"{NOTIFY} cannot be the default action")
    yield from errno_findings(profile, "defaultErrnoRet", "defaultErrnoRet", default)
    listed = profile.get("syscalls")
    rules: list[Rule] = []
    for index, value in enumerate(listed if isinstance(listed, list) else ()):
        found, rule = rule_findings(value, f"syscalls[{index}]", names, architecture)
        yield from found
        rules += [rule] if rule else []
    yield from _duplicates(rules)
    if any(known_as(rule.action) == NOTIFY for rule in rules) and not profile.get("listenerPath"):
        yield warning("listenerPath", f"{NOTIFY} needs a listener; runc refuses the profile")
    if isinstance(default, str) and not top_level:
        yield from _denies_everything(known_as(default), rules)


def _top_findings(profile: dict[str, Any]) -> Iterator[LintFinding]:
    yield from field_findings(
        profile, _TOP, "", required=("defaultAction",), misplaced=_OTHER_TOOLS
    )
    yield from _listed(profile, "architectures", lambda text: text.startswith("SCMP_ARCH_"))
    yield from _listed(profile, "flags", lambda text: text in _FLAGS)


def _listed(profile: dict[str, Any], key: str, good: Any) -> Iterator[LintFinding]:
    values = profile.get(key)
    for index, value in enumerate(values if isinstance(values, list) else ()):
        if not isinstance(value, str) or not good(value):
            yield error(f"{key}[{index}]", f"{shown(value)} is not among the known {key}")


def _duplicates(rules: Iterable[Rule]) -> Iterator[LintFinding]:
    """Names with two unconditional rules: only one of them takes effect."""
    first: dict[str, Rule] = {}
    for rule in rules:
        if rule.conditional:
            continue
        for name in dict.fromkeys(rule.names):
            other = first.setdefault(name, rule)
            if other is rule:
                continue
            same = known_as(other.action) == known_as(rule.action)
            what = "again" if same else f"there with another action, {other.action}"
            yield error(f"{rule.where}.names", f"{name!r} is in {other.where} too, {what}")


def _denies_everything(default: str, rules: Collection[Rule]) -> Iterator[LintFinding]:
    """A container starts with execve; a profile that never allows it denies everything."""
    allowed = any(_START in rule.names and known_as(rule.action) in ALLOWING for rule in rules)
    denied = any(
        _START in rule.names and known_as(rule.action) in DENYING and not rule.conditional
        for rule in rules
    )
    if default in DENYING and not any(
        rule.names and known_as(rule.action) in ALLOWING for rule in rules
    ):
        text = "it denies everything: the default action denies and no rule allows anything"
        yield error("", text)
    elif denied or (default in DENYING and not allowed):
        yield error("", f"it denies everything: no program can start without {_START}")


class _Duplicate(Exception):
    """A duplicate key in a JSON object."""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _Duplicate(key)
        found[key] = value
    return found
