"""Which of the wanted rules are not covered by held rules, and how an error lists them; pure.

As the reference compares policies: a wanted rule is split into its smallest parts, and each part
must lie within a single held rule (apiserver §3.3).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from orch.server.authz.rules import ALL, Rule, url_matches

MAX_PARTS = 20_000  # a larger role is refused: comparing it would take minutes


class TooManyParts(Exception):
    """The wanted rules have more parts than are compared."""


def missing(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """The parts of the wanted rules that no held rule covers, compacted; TooManyParts."""
    left: dict[Rule, None] = {}
    budget = MAX_PARTS
    for rule in wanted:
        if any(_within(rule, owner) for owner in held):
            continue
        budget -= _count(rule)
        if budget < 0:
            raise TooManyParts(f"the rules have more than {MAX_PARTS} parts")
        for part in _parts(rule):
            if part not in left and not any(_within(part, owner) for owner in held):
                left[part] = None
    return _compacted(left)


def text_of(rules: Iterable[Rule]) -> str:
    """One rule per line, as the reference writes them."""
    return "\n".join(sorted(_line(rule) for rule in rules))


def quoted(values: Iterable[str]) -> str:
    """A list of texts as the reference writes it: `["a" "b"]`."""
    inner = " ".join('"' + value.replace('"', '\\"') + '"' for value in values)
    return f"[{inner}]"


def _within(rule: Rule, owner: Rule) -> bool:
    """Is the whole rule covered by this one rule?"""
    if ALL not in owner.verbs and not set(rule.verbs) <= set(owner.verbs):
        return False
    if not all(any(url_matches(owned, url) for owned in owner.urls) for url in rule.urls):
        return False
    if not rule.resources:
        return bool(rule.urls)
    return (
        (ALL in owner.groups or set(rule.groups) <= set(owner.groups))
        and all(_resource_within(resource, owner.resources) for resource in rule.resources)
        and (not owner.names or (bool(rule.names) and set(rule.names) <= set(owner.names)))
    )


def _resource_within(resource: str, owned: Sequence[str]) -> bool:
    if ALL in owned or resource in owned:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in owned


def _count(rule: Rule) -> int:
    on_resources = len(rule.groups) * len(rule.resources) * max(len(rule.names), 1)
    return (on_resources + len(rule.urls)) * len(rule.verbs)


def _parts(rule: Rule) -> Iterator[Rule]:
    for verb, url in itertools.product(rule.verbs, rule.urls):
        yield Rule((verb,), urls=(url,))
    names: tuple[tuple[str, ...], ...] = tuple((name,) for name in rule.names) or ((),)
    for group, resource, name, verb in itertools.product(
        rule.groups, rule.resources, names, rule.verbs
    ):
        yield Rule((verb,), (group,), (resource,), name)


def _compacted(parts: Iterable[Rule]) -> list[Rule]:
    """Parts that differ in the verb only, as one rule."""
    verbs: dict[Rule, list[str]] = {}
    for part in parts:
        verbs.setdefault(replace(part, verbs=()), []).append(part.verbs[0])
    return [replace(rest, verbs=tuple(found)) for rest, found in verbs.items()]


def _line(rule: Rule) -> str:
    fields = {
        "APIGroups": rule.groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.urls,
        "ResourceNames": rule.names,
        "Verbs": rule.verbs,
    }
    shown = ", ".join(f"{name}:{quoted(values)}" for name, values in fields.items() if values)
    return f"{{{shown}}}"
