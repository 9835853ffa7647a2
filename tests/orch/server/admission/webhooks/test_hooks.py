"""K:staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules/rules_test.go, and
its neighbours about selectors and match policies.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orch.server.admission.webhooks.hooks import Hook, Matched, concerned, hooks_of
from orch.wire.records.kinds import (
    CONFIG_MAPS,
    EVENT_REPORTS,
    EVENTS,
    NODES,
    PODS,
    ROLES,
    Resource,
)

EVERYTHING = {
    "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"],
}  # fmt: skip
RBAC, RBAC_UPSTREAM = "rbac.authorization.orch.io", "rbac.authorization.k8s.io"
REPORTS, REPORTS_UPSTREAM = "events.orch.io", "events.k8s.io"


def hook(*rules: dict[str, Any], **fields: Any) -> Hook:
    record = {
        "name": "a.b.c", "clientConfig": {"url": "https://h:1/p/q"},
        "rules": [{**EVERYTHING, **rule} for rule in rules], **fields,
    }  # fmt: skip
    document = {"metadata": {"name": "x"}, "webhooks": [record]}
    (made,) = hooks_of(document, is_mutating=True)
    return made


def asked(
    resource: Resource = PODS, part: str = "", operation: str = "CREATE", group: str | None = None
) -> Matched:
    return Matched(operation, resource, part, resource.group if group is None else group)


@pytest.mark.parametrize(
    ("rule", "request_", "fits"),
    [
        ({}, asked(), True),
        ({}, asked(part="status"), False),
        ({"resources": ["*/*"]}, asked(part="status"), True),
        ({"resources": ["*/*"]}, asked(), True),
        ({"resources": ["pods"]}, asked(), True),
        ({"resources": ["pods"]}, asked(part="exec"), False),
        ({"resources": ["pods/exec"]}, asked(part="exec"), True),
        ({"resources": ["pods/*"]}, asked(part="exec"), True),
        ({"resources": ["pods/*"]}, asked(), True),
        ({"resources": ["*/exec"]}, asked(part="exec"), True),
        ({"resources": ["*/exec"]}, asked(), False),
        ({"resources": ["nodes", "pods"]}, asked(), True),
        ({"operations": ["UPDATE", "DELETE"]}, asked(), False),
        ({"operations": ["UPDATE", "DELETE"]}, asked(operation="DELETE"), True),
        ({"operations": ["*"]}, asked(operation="CONNECT"), True),
        ({"apiGroups": [""]}, asked(), True),
        ({"apiGroups": [""]}, asked(ROLES), False),
        ({"apiGroups": ["apps", RBAC]}, asked(ROLES), True),
        ({"apiVersions": ["v1beta1"]}, asked(), False),
        ({"apiVersions": ["v1beta1", "v1"]}, asked(), True),
        ({"scope": "Cluster"}, asked(), False),
        ({"scope": "Cluster"}, asked(NODES), True),
        ({"scope": "Namespaced"}, asked(CONFIG_MAPS), True),
        ({"scope": "Namespaced"}, asked(NODES), False),
        ({"scope": "*"}, asked(NODES), True),
    ],
)
def test_a_rule_fits_what_it_names(rule: dict[str, Any], request_: Matched, fits: bool) -> None:
    assert bool(concerned([hook(rule)], request_)) == fits


@pytest.mark.parametrize(
    ("policy", "groups", "request_", "group"),
    [
        ("Equivalent", [RBAC], asked(ROLES), RBAC),
        ("Equivalent", [RBAC_UPSTREAM], asked(ROLES), RBAC_UPSTREAM),
        ("Equivalent", [RBAC], asked(ROLES, group=RBAC_UPSTREAM), RBAC),
        ("Equivalent", [RBAC, RBAC_UPSTREAM], asked(ROLES, group=RBAC_UPSTREAM), RBAC_UPSTREAM),
        ("Exact", [RBAC_UPSTREAM], asked(ROLES), None),
        ("Exact", [RBAC_UPSTREAM], asked(ROLES, group=RBAC_UPSTREAM), RBAC_UPSTREAM),
        ("Exact", [RBAC], asked(ROLES, group=RBAC_UPSTREAM), None),
        ("Equivalent", ["apps"], asked(ROLES), None),
        ("Equivalent", [""], asked(EVENT_REPORTS), ""),
        ("Equivalent", [REPORTS], asked(EVENTS), REPORTS),
        ("Equivalent", [REPORTS_UPSTREAM], asked(EVENTS), REPORTS_UPSTREAM),
        ("Equivalent", ["", REPORTS], asked(EVENTS), ""),
        ("Equivalent", ["*"], asked(EVENT_REPORTS), REPORTS),
        ("Exact", [REPORTS], asked(EVENTS), None),
        ("Exact", [""], asked(EVENT_REPORTS), None),
    ],
)
def test_every_name_of_a_group_counts_unless_exact(
    policy: str, groups: list[str], request_: Matched, group: str | None
) -> None:
    made = hook({"apiGroups": groups}, matchPolicy=policy)
    name = made.name_for(request_)
    assert (name and name.group) == group


@pytest.mark.parametrize(
    ("policy", "versions", "version"),
    [
        ("Equivalent", ["v1"], "v1"),
        ("Equivalent", ["v1", "v2"], "v2"),
        ("Equivalent", ["*"], "v2"),
        ("Equivalent", ["v3"], None),
        ("Exact", ["v1"], None),
        ("Exact", ["v2"], "v2"),
    ],
)
def test_a_kind_counts_under_each_of_its_versions_unless_exact(
    policy: str, versions: list[str], version: str | None
) -> None:
    widgets = replace(ROLES, group="example.com", version="v2", other_versions=("v1",))
    rule = {"apiGroups": ["example.com"], "apiVersions": versions}
    name = hook(rule, matchPolicy=policy).name_for(asked(widgets))
    assert (name and name.version) == version


LABELLED = {"metadata": {"labels": {"a": "b"}}}
PLAIN: dict[str, Any] = {"metadata": {}}
BY_LABEL = {"matchLabels": {"a": "b"}}


@pytest.mark.parametrize(
    ("selectors", "labels", "new", "old", "selected"),
    [
        ({}, {}, PLAIN, None, True),
        ({}, None, None, None, True),
        ({"namespaceSelector": BY_LABEL}, {"a": "b"}, PLAIN, None, True),
        ({"namespaceSelector": BY_LABEL}, {"a": "c"}, PLAIN, None, False),
        ({"namespaceSelector": BY_LABEL}, None, PLAIN, None, True),  # of no namespace
        ({"objectSelector": BY_LABEL}, {}, LABELLED, None, True),
        ({"objectSelector": BY_LABEL}, {}, PLAIN, LABELLED, True),
        ({"objectSelector": BY_LABEL}, {}, None, LABELLED, True),
        ({"objectSelector": BY_LABEL}, {}, PLAIN, PLAIN, False),
        ({"objectSelector": BY_LABEL}, {}, {"kind": "PodExecOptions"}, None, False),
        ({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}},
         {}, PLAIN, LABELLED, True),
    ],
)  # fmt: skip
def test_both_selectors_must_match(
    selectors: Any, labels: Any, new: Any, old: Any, selected: bool
) -> None:
    assert hook({}, **selectors).selects(labels, new, old) == selected


def test_an_address_is_its_server_and_its_path() -> None:
    made = hook({})
    assert (made.server, made.path, made.timeout_s) == ("https://h:1", "/p/q", 10.0)
    assert hook({}, clientConfig={"url": "https://h"}).path == "/"
