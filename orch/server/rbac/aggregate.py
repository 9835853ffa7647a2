"""The rules of a cluster role that is made of others; pure. As apiserver §3.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orch.wire.selectors import LabelSelector, label_selector_of

Document = Mapping[str, Any]


def is_aggregated(role: Document) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def aggregated_rules(role: Document, others: Iterable[Document]) -> list[Any]:
    """The rules of all cluster roles that its selectors match, each rule once.

    In the order of the selectors, then of names; `others` may include the role itself.
    """
    own = role["metadata"]["name"]
    ordered = sorted(others, key=lambda one: str(one["metadata"]["name"]))
    found: list[Any] = []
    for selector in selectors_of(role):
        for other in ordered:
            metadata = other["metadata"]
            if metadata["name"] != own and selector.matches(metadata.get("labels") or {}):
                found.extend(rule for rule in other.get("rules") or () if rule not in found)
    return found


def selectors_of(role: Document) -> list[LabelSelector]:
    """Of an aggregated role."""
    return [label_selector_of(one) for one in role["aggregationRule"]["clusterRoleSelectors"]]
