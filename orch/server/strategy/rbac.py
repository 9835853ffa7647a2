"""Roles: rules that must make sense. Bindings: a role that never changes, for subjects; pure.

As apiserver §3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from orch.server.strategy.base import Document, Strategy
from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.names import RBAC_GROUP
from orch.wire.records.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from orch.wire.selectors import label_selector_of
from orch.wire.validation import dns1123_subdomain_problems, path_segment_problems

_ON_RESOURCES = ("apiGroups", "resources", "resourceNames")


def _validate(new: Document, _old: Document | None, *, namespaced: bool) -> Iterator[Cause]:
    for index, rule in enumerate(new.get("rules") or ()):
        yield from _rule_causes(rule, f"rules[{index}]", namespaced=namespaced)
    if not namespaced and new.get("aggregationRule") is not None:
        yield from _aggregation_causes(new["aggregationRule"])


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


ROLE_STRATEGIES = tuple(
    Strategy(
        resource,
        name_problems=path_segment_problems,
        validate=partial(_validate, namespaced=resource.namespaced),
    )
    for resource in (CLUSTER_ROLES, ROLES)
)

_SUBJECT_GROUPS = {"ServiceAccount": "", "User": RBAC_GROUP, "Group": RBAC_GROUP}


def _prepare(document: Document, _old: Document | None = None) -> None:
    """Fill in the API groups that clients may omit."""
    reference = document.setdefault("roleRef", {})
    if not reference.get("apiGroup"):
        reference["apiGroup"] = RBAC_GROUP
    for subject in document.get("subjects") or ():
        group = _SUBJECT_GROUPS.get(subject.get("kind") or "")
        if group and not subject.get("apiGroup"):
            subject["apiGroup"] = group


def _validate_binding(new: Document, old: Document | None, *, namespaced: bool) -> Iterator[Cause]:
    reference = new.get("roleRef") or {}
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    yield from _reference_causes(reference, kinds)
    for index, subject in enumerate(new.get("subjects") or ()):
        yield from _subject_causes(subject, f"subjects[{index}]", namespaced=namespaced)
    if old is not None and reference != old.get("roleRef"):
        yield causes.invalid_value("roleRef", reference, "cannot change roleRef")


def _reference_causes(reference: Document, kinds: tuple[str, ...]) -> Iterator[Cause]:
    group = reference.get("apiGroup")
    if group != RBAC_GROUP:
        yield causes.not_supported("roleRef.apiGroup", group, (RBAC_GROUP,))
    if reference.get("kind") not in kinds:
        yield causes.not_supported("roleRef.kind", reference.get("kind") or "", kinds)
    name = reference.get("name") or ""
    if not name:
        yield causes.required("roleRef.name")
    for problem in path_segment_problems(name):
        yield causes.invalid_value("roleRef.name", name, problem)


def _subject_causes(subject: Document, path: str, *, namespaced: bool) -> Iterator[Cause]:
    kind, name = subject.get("kind") or "", subject.get("name") or ""
    if not name:
        yield causes.required(f"{path}.name")
    if kind not in _SUBJECT_GROUPS:
        yield causes.not_supported(f"{path}.kind", kind, tuple(_SUBJECT_GROUPS))
        return
    group = subject.get("apiGroup") or ""
    if group != _SUBJECT_GROUPS[kind]:
        yield causes.not_supported(f"{path}.apiGroup", group, (_SUBJECT_GROUPS[kind],))
    if kind != "ServiceAccount":
        return
    for problem in dns1123_subdomain_problems(name) if name else ():
        yield causes.invalid_value(f"{path}.name", name, problem)
    if not namespaced and not subject.get("namespace"):
        yield causes.required(f"{path}.namespace")


BINDING_STRATEGIES = tuple(
    Strategy(
        resource,
        name_problems=path_segment_problems,
        prepare_create=_prepare,
        prepare_update=_prepare,
        validate=partial(_validate_binding, namespaced=resource.namespaced),
    )
    for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS)
)
