"""Which of the wanted rules are not covered by held rules, and how an error lists them; pure.

As the reference compares policies: a wanted rule is split into its smallest parts, and each part
must lie within a single held rule (apiserver §3.3).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from orch.server.authz.rules import ALL, MAX_TEXTS, Rule, url_matches

MAX_PARTS = 10_000  # a larger role is refused: comparing it would take minutes
_MAX_URL_COMPARISONS = 50_000


class TooManyParts(Exception):
    """The wanted or the held rules have more parts than are compared."""


def missing(held: Iterable[Rule], wanted: Iterable[Rule], at_most: int | None = None) -> list[Rule]:
    """The parts of the wanted rules that no held rule covers, compacted; TooManyParts.

    `at_most`: the number of parts that are enough to know.
    """
    owners = _Owners(held)
    left: dict[Rule, None] = {}
    budget = MAX_PARTS
    for rule in wanted:
        if owners.cover(rule):
            continue
        budget -= _count(rule)
        if budget < 0:
            raise TooManyParts(f"the rules have more than {MAX_PARTS} parts")
        for part in _parts(rule):
            if len(left) == at_most:
                return _compacted(left)
            if part not in left and not owners.cover(part):
                left[part] = None
    return _compacted(left)


class _Owners:
    """The held rules by what they contain: for each text one number, with a bit for each rule.

    So the rules that contain all of several texts are found without looking at any rule.
    """

    def __init__(self, held: Iterable[Rule]) -> None:
        rules = list(dict.fromkeys(held))
        self._bits: list[dict[str, int]] = [{} for _ in range(5)]
        self._nameless = 0
        for place, rule in enumerate(rules):
            lists = (rule.verbs, rule.groups, rule.resources, rule.names, rule.urls)
            for bits, texts in zip(self._bits, lists, strict=True):
                for text in texts:
                    bits[text] = bits.get(text, 0) | 1 << place
            self._nameless |= (not rule.names) << place
        self._all = (1 << len(rules)) - 1
        self._patterns = [url for url in self._bits[4] if url.endswith(ALL)]
        self._comparisons = 0

    def cover(self, rule: Rule) -> bool:
        """Is the whole rule covered by one of them?"""
        if not rule.resources and not rule.urls:
            return False
        verbs, groups, resources, names, _ = self._bits
        found = self._all
        for verb in rule.verbs:
            found &= verbs.get(verb, 0) | verbs.get(ALL, 0)
        for url in rule.urls if found else ():
            found &= self._with_url(url)
        for group in rule.groups if found and rule.resources else ():
            found &= groups.get(group, 0) | groups.get(ALL, 0)
        for resource in rule.resources if found else ():
            _, slash, subresource = resource.partition("/")
            wide = resources.get(f"*/{subresource}", 0) if slash else 0
            found &= resources.get(resource, 0) | resources.get(ALL, 0) | wide
        named = -1 if rule.names else 0
        for name in rule.names if found else ():
            named &= names.get(name, 0)
        return bool(found & (self._nameless | named) if rule.resources else found)

    def _with_url(self, url: str) -> int:
        found = self._bits[4].get(url, 0)
        self._comparisons += len(self._patterns)
        if self._comparisons > _MAX_URL_COMPARISONS:
            raise TooManyParts("the rules have too many URLs to compare")
        for pattern in self._patterns:
            if url_matches(pattern, url):
                found |= self._bits[4][pattern]
        return found


def bounded(held: Sequence[Rule]) -> Sequence[Rule]:
    """The rules; TooManyParts when they are too many to compare with."""
    size = 0
    for rule in held:
        size += rule.size
        if size > MAX_TEXTS:
            raise TooManyParts(f"the rules held by the caller have more than {MAX_TEXTS} parts")
    return held


def text_of(rules: Iterable[Rule]) -> str:
    """One rule per line, as the reference writes them."""
    return "\n".join(sorted(_line(rule) for rule in rules))


def quoted(values: Iterable[str]) -> str:
    """A list of texts as the reference writes it: `["a" "b"]`."""
    inner = " ".join('"' + value.replace('"', '\\"') + '"' for value in values)
    return f"[{inner}]"


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
