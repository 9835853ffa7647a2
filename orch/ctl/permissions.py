"""The rules of a SelfSubjectRulesReview as rows, in the way and order of `kubectl`; pure.

A rule is taken apart into one per resource or path; those about the same resource are one row, with
all their verbs: k8s.io/kubectl/pkg/util/rbac and k8s.io/component-helpers/auth/rbac/validation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from orch.wire import raw

HEADER = ("Resources", "Non-Resource URLs", "Resource Names", "Verbs")


class _Row(NamedTuple):
    """In the order rows are sorted by; an empty group is the core's, and that of a path."""

    verbs: tuple[str, ...]
    group: str
    resource: str
    name: str
    path: str

    @property
    def sort_key(self) -> str:
        groups = f"[{self.group}]" if self.resource else "[]"
        lists = (f"[{' '.join(self.verbs)}]", groups, *map(_listed, self[2:]))
        names = ("Verbs", "APIGroups", "Resources", "ResourceNames", "NonResourceURLs")
        return "".join(f"{name}:{text}," for name, text in zip(names, lists, strict=True))


def rows(review: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The cells under HEADER of everything a review allows."""
    merged: dict[tuple[str, str, str], list[str]] = {}
    for verb, group, resource, name in _resource_rules(review):
        verbs = merged.setdefault((group, resource, name), [])
        if verb not in verbs:
            verbs.append(verb)
    found = [_Row(tuple(verbs), *key, "") for key, verbs in merged.items()]
    for rule in raw.records(review, "status", "nonResourceRules"):
        pairs = product(_texts(rule, "verbs"), _texts(rule, "nonResourceURLs"))
        found += [_Row((verb,), "", "", "", path) for verb, path in pairs]
    return [
        (_combined(row), _listed(row.path), _listed(row.name), f"[{' '.join(row.verbs)}]")
        for row in sorted(found, key=lambda row: row.sort_key)
    ]


def _resource_rules(review: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    for rule in raw.records(review, "status", "resourceRules"):
        yield from product(
            _texts(rule, "verbs"), _texts(rule, "apiGroups") or [""], _texts(rule, "resources"),
            _texts(rule, "resourceNames") or [""],
        )  # fmt: skip


def _texts(rule: Mapping[str, Any], key: str) -> list[str]:
    return [str(one) for one in rule.get(key) or ()]


def _combined(row: _Row) -> str:
    """`pods/log`, `leases.coordination.orch.io/status`."""
    resource, slash, subresource = row.resource.partition("/")
    return f"{resource}{f'.{row.group}' if row.group else ''}{slash}{subresource}"


def _listed(text: str) -> str:
    return f"[{text}]"
