"""Roles and cluster roles: lists of rules that must make sense; pure. Rules as apiserver §3.1."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from orch.server import fieldcauses as causes
from orch.server.strategy.base import Document, Strategy
from orch.wire.errors import Cause
from orch.wire.kinds import CLUSTER_ROLES, ROLES
from orch.wire.selectors import label_selector_of
from orch.wire.validation import path_segment_problems

_ON_RESOURCES = ("apiGroups", "resources", "resourceNames")


def _validate(new: Document, _old: Document | None, *, namespaced: bool) -> list[Cause]:
    found: list[Cause] = []
    for index, rule in enumerate(new.get("rules") or ()):
        found.extend(_rule_causes(rule, f"rules[{index}]", namespaced=namespaced))
    if not namespaced and new.get("aggregationRule") is not None:
        found.extend(_aggregation_causes(new["aggregationRule"]))
    return found


def _rule_causes(rule: Document, path: str, *, namespaced: bool) -> Iterator[Cause]:
    if not rule.get("verbs"):
        yield causes.required(f"{path}.verbs", "verbs must contain at least one value")
    urls = rule.get("nonResourceURLs")
    if not urls:
        if not rule.get("apiGroups"):
            yield causes.required(f"{path}.apiGroups", "resource rules must supply an api group")
        if not rule.get("resources"):
            yield causes.required(f"{path}.resources", "resource rules must supply a resource")
    elif namespaced:
        text = "namespaced rules cannot apply to non-resource URLs"
        yield causes.invalid_value(f"{path}.nonResourceURLs", urls, text)
    elif any(rule.get(name) for name in _ON_RESOURCES):
        text = "rules cannot apply to both regular resources and non-resource URLs"
        yield causes.invalid_value(f"{path}.nonResourceURLs", urls, text)


def _aggregation_causes(aggregation: Document) -> Iterator[Cause]:
    path = "aggregationRule.clusterRoleSelectors"
    selectors = aggregation.get("clusterRoleSelectors")
    if not selectors:
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield causes.required(path, text)
    for index, selector in enumerate(selectors or ()):
        try:
            label_selector_of(selector)
        except ValueError as error:
            yield causes.invalid_value(f"{path}[{index}]", selector, str(error))


STRATEGIES = tuple(
    Strategy(
        resource,
        name_problems=path_segment_problems,
        validate=partial(_validate, namespaced=resource.namespaced),
    )
    for resource in (CLUSTER_ROLES, ROLES)
)
