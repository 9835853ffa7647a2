"""Defaults are completed, never cut back: K:pkg/registry/rbac/reconciliation tests."""

from __future__ import annotations

from typing import Any

from orch.server.authz import reconcile

GET = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
BOTH = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}
ANN, BOB = {"kind": "User", "name": "ann"}, {"kind": "User", "name": "bob"}
AUTOUPDATE = "rbac.authorization.orch.io/autoupdate"


def role(*rules: dict, labels: dict | None = None, annotations: dict | None = None) -> Any:
    metadata = {"name": "r", "labels": labels or {}, "annotations": annotations or {}}
    return {"metadata": metadata, "rules": list(rules)}


def binding(*subjects: dict, role_name: str = "r", **annotations: str) -> Any:
    metadata = {"name": "b", "labels": {}, "annotations": annotations}
    return {"metadata": metadata, "roleRef": {"name": role_name}, "subjects": list(subjects)}


def test_missing_rules_are_added_and_others_stay() -> None:
    other = {"verbs": ["watch"], "apiGroups": [""], "resources": ["nodes"]}
    result = reconcile.role(role(other, GET), role(BOTH))
    assert result["rules"] == [
        other, GET, {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]},
    ]  # fmt: skip
    stored = role(BOTH, other)
    assert reconcile.role(stored, role(GET)) == stored


def test_labels_are_merged_and_what_exists_wins() -> None:
    result = reconcile.role(role(labels={"a": "mine"}), role(labels={"a": "theirs", "b": "1"}))
    assert result["metadata"]["labels"] == {"a": "mine", "b": "1"}


def test_an_object_can_protect_itself() -> None:
    stored = role(annotations={AUTOUPDATE: "false"})
    assert reconcile.role(stored, role(GET)) is stored
    protected = binding(role_name="other", **{AUTOUPDATE: "false"})
    assert reconcile.binding(protected, binding(ANN)) is protected
    assert not reconcile.is_protected(role(annotations={AUTOUPDATE: "False"}))


def test_aggregation_is_completed_or_dropped() -> None:
    mine, theirs = {"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "1"}}
    stored = {**role(), "aggregationRule": {"clusterRoleSelectors": [mine]}}
    wanted = {**role(), "aggregationRule": {"clusterRoleSelectors": [theirs]}}
    result = reconcile.role(stored, wanted)
    assert result["aggregationRule"] == {"clusterRoleSelectors": [mine, theirs]}
    assert "aggregationRule" not in reconcile.role(stored, role())


def test_missing_subjects_are_added() -> None:
    result = reconcile.binding(binding(BOB), binding(ANN))
    assert result is not None
    assert result["subjects"] == [BOB, ANN]


def test_a_binding_of_another_role_is_made_anew() -> None:
    assert reconcile.binding(binding(role_name="other"), binding(ANN)) is None
