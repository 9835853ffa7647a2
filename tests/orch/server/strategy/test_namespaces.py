from __future__ import annotations

import pytest

from orch.server.strategy.namespaces import PROTECTED, STRATEGY, is_terminating


def test_a_new_namespace_is_active_and_held_by_the_server() -> None:
    document = {"metadata": {"name": "x"}, "status": {"phase": "Terminating"}}
    STRATEGY.prepare_create(document)
    assert document["status"] == {"phase": "Active"}
    assert document["spec"]["finalizers"] == ["orch"]
    assert not is_terminating(document)


def test_finalizers_of_others_are_kept_beside_the_servers() -> None:
    document = {"metadata": {"name": "x"}, "spec": {"finalizers": ["a.io/b"]}}
    STRATEGY.prepare_create(document)
    assert document["spec"]["finalizers"] == ["a.io/b", "orch"]
    STRATEGY.prepare_create(document)
    assert document["spec"]["finalizers"] == ["a.io/b", "orch"]


def test_an_ordinary_update_cannot_let_a_namespace_go() -> None:
    old = {"metadata": {}, "spec": {"finalizers": ["orch"]}, "status": {"phase": "Active"}}
    new = {"metadata": {}, "spec": {"finalizers": []}, "status": {"phase": "Other"}}
    STRATEGY.prepare_update(new, old)
    assert new == old
    new = {"metadata": {}, "spec": {}, "status": {"phase": "Other"}}
    STRATEGY.prepare_status(new, old)
    assert new["spec"] == {"finalizers": ["orch"]}


def test_a_namespace_with_a_deletion_time_is_terminating() -> None:
    assert is_terminating({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})


@pytest.mark.parametrize(
    ("metadata", "phase", "well"),
    [
        ({}, "Active", True),
        ({}, "Terminating", False),
        ({}, "", False),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Terminating", True),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Active", False),
    ],
)
def test_the_phase_says_whether_a_namespace_is_leaving(metadata, phase, well) -> None:
    found = STRATEGY.validate({"metadata": metadata, "status": {"phase": phase}}, None)
    assert [cause.field for cause in found] == ([] if well else ["status.phase"])


def test_a_phase_that_was_stored_before_hinders_no_other_change() -> None:
    stored = {"metadata": {}, "status": {"phase": "Odd"}}
    assert list(STRATEGY.validate({**stored, "metadata": {"labels": {"a": "b"}}}, stored)) == []


def test_the_first_namespaces_are_protected() -> None:
    assert {"default", "orch-system", "orch-node-lease"} == PROTECTED


def test_names_are_labels() -> None:
    assert STRATEGY.name_problems("a.b")
    assert not STRATEGY.name_problems("a-b")
