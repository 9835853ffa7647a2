"""The contents allowed in a role: K:pkg/apis/rbac/validation/validation_test.go."""

from __future__ import annotations

import pytest

from orch.server.strategy.rbac import ROLE_STRATEGIES

CLUSTER, NAMESPACED = ROLE_STRATEGIES
PODS = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
URLS = {"verbs": ["get"], "nonResourceURLs": ["/a", "/b/*"]}


def causes_of(strategy, **fields) -> list[tuple[str, str]]:
    return [(c.field, c.reason) for c in strategy.validate({"metadata": {}, **fields}, None)]


@pytest.mark.parametrize("strategy", ROLE_STRATEGIES)
@pytest.mark.parametrize(
    ("rule", "found"),
    [
        (PODS, []),
        ({**PODS, "resourceNames": ["a"], "resources": ["pods", "nodes"]}, []),
        ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, []),
        ({**PODS, "verbs": []}, [("rules[0].verbs", "FieldValueRequired")]),
        (
            {"verbs": ["get"], "resources": ["pods"]},
            [("rules[0].apiGroups", "FieldValueRequired")],
        ),
        (
            {"verbs": ["get"], "apiGroups": [""]},
            [("rules[0].resources", "FieldValueRequired")],
        ),
        ({**PODS, **URLS}, [("rules[0].nonResourceURLs", "FieldValueInvalid")]),
    ],
)
def test_a_rule_is_about_resources_or_about_paths(strategy, rule, found) -> None:
    assert causes_of(strategy, rules=[rule]) == found


def test_only_a_cluster_role_is_about_paths() -> None:
    assert causes_of(CLUSTER, rules=[URLS]) == []
    assert causes_of(NAMESPACED, rules=[URLS]) == [
        ("rules[0].nonResourceURLs", "FieldValueInvalid")
    ]


def test_a_role_without_rules_is_one() -> None:
    assert causes_of(CLUSTER) == causes_of(NAMESPACED, rules=None) == []


@pytest.mark.parametrize(
    ("aggregation", "field"),
    [
        ({}, "aggregationRule.clusterRoleSelectors"),
        ({"clusterRoleSelectors": []}, "aggregationRule.clusterRoleSelectors"),
        (
            {"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]},
            "aggregationRule.clusterRoleSelectors[0]",
        ),
        ({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}, None),
    ],
)
def test_an_aggregation_selects_by_labels(aggregation, field) -> None:
    fields = [found for found, _ in causes_of(CLUSTER, aggregationRule=aggregation)]
    assert fields == ([field] if field else [])


@pytest.mark.parametrize(("name", "fits"), [("system:node", True), ("a/b", False), ("..", False)])
def test_names_are_segments_of_a_path(name, fits) -> None:
    assert (not CLUSTER.name_problems(name)) is fits
