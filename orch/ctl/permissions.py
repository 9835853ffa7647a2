"""The rules of roles and of a SelfSubjectRulesReview as rows, in the way of `kubectl`; pure.

A rule is taken apart into one per resource or path; those about the same resource are one row, with
all their verbs: k8s.io/kubectl/pkg/util/rbac and k8s.io/component-helpers/auth/rbac/validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        lists = (f"[{' '.join(self.verbs)}]", *map(_listed, self[1:]))
        names = ("Verbs", "APIGroups", "Resources", "ResourceNames", "NonResourceURLs")
        return "".join(f"{name}:{text}," for name, text in zip(names, lists, strict=True))


def rows(rules: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The cells under HEADER of everything that rules allow."""
    merged: dict[tuple[str, str, str], list[str]] = {}
    found = []
    for rule in rules:
        verbs = _texts(rule, "verbs")
        for verb, group, resource, name in product(
            verbs, _texts(rule, "apiGroups"), _texts(rule, "resources"),
            _texts(rule, "resourceNames") or [""],
        ):  # fmt: skip
            known = merged.setdefault((group, resource, name), [])
            if verb not in known:
                known.append(verb)
        pairs = product(verbs, _texts(rule, "nonResourceURLs"))
        found += [_Row((verb,), "", "", "", path) for verb, path in pairs]
    found += [_Row(tuple(verbs), *key, "") for key, verbs in merged.items()]
    return [
        (_combined(row), _listed(row.path), _listed(row.name), f"[{' '.join(row.verbs)}]")
        for row in sorted(found, key=lambda row: row.sort_key)
    ]


def _texts(rule: Mapping[str, Any], key: str) -> list[str]:
    found = raw.value(rule, key)
    return [str(one) for one in found] if isinstance(found, list) else []


def _combined(row: _Row) -> str:
    """`pods/log`, `leases.coordination.orch.io/status`."""
    resource, slash, subresource = row.resource.partition("/")
    return f"{resource}{f'.{row.group}' if row.group else ''}{slash}{subresource}"


def _listed(text: str) -> str:
    return f"[{text}]"
