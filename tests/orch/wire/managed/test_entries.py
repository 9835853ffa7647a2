"""Entries of `metadata.managedFields`: read, written, merged, and the words of conflicts."""

from __future__ import annotations

from typing import Any

import pytest

from orch.wire.errors import ApiError
from orch.wire.managed import entries
from orch.wire.managed.entries import APPLY, UPDATE, Managed, Manager
from orch.wire.managed.ownership import ConflictError, Owned

FIELDS = {"f:spec": {"f:replicas": {}}}


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "manager": "kubectl",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": FIELDS,
    } | changes


def test_entries_are_written_as_they_were_read_the_oldest_first() -> None:
    sent = [
        entry(operation="Update", manager="b", subresource="status", time="2026-01-02T03:04:06Z"),
        entry(operation="Update", manager="c"),
        entry(),
    ]
    read = entries.read(sent, "v1")
    assert set(read.owners) == {
        Manager("kubectl", APPLY),
        Manager("c", UPDATE, "v1"),
        Manager("b", UPDATE, "v1", "status"),
    }
    written = entries.written(read, "v1")
    assert written == sent[::-1]
    assert entries.stored(written) == read


def test_entries_of_a_version_that_is_not_served_are_left_out() -> None:
    read = entries.read([entry(apiVersion="v0"), entry(manager="other")], "v1")
    assert [manager.name for manager in read.owners] == ["other"]


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        ({}, "must be a list"),
        ([1], "must be an object"),
        ([entry(operation="Patch")], "operation must be"),
        ([entry(apiVersion="")], "apiVersion must not be empty"),
        ([entry(fieldsType="")], "fieldsType must be FieldsV1"),
        ([entry(manager=1)], "must be a text"),
        ([entry(fieldsV1={"x": {}})], "is no path element"),
        ([entry(manager=str(n)) for n in range(101)], "at most 100"),
    ],
)
def test_malformed_entries_are_refused(sent: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        entries.read(sent, "v1")


@pytest.mark.parametrize(
    ("sent", "resets"), [([], True), ([{}], True), (None, False), ([entry()], False)]
)
def test_a_client_can_ask_to_forget_all_managers(sent: Any, resets: bool) -> None:
    assert entries.is_reset(sent) is resets


def test_the_oldest_updaters_become_one() -> None:
    names = [f"m{n:02}" for n in range(12)]
    owners = {Manager(n, UPDATE, "v1"): Owned({f"f:{n}": {}}, applied=False) for n in names}
    owners[Manager("a", APPLY)] = Owned(FIELDS, applied=True)
    times = {manager: f"2026-01-01T00:00:{n:02}Z" for n, manager in enumerate(owners)}
    capped = entries.capped(Managed(owners, times))
    merged = Manager("ancient-changes", UPDATE, "v1")
    assert capped.owners[merged].fields == {"f:m00": {}, "f:m01": {}, "f:m02": {}}
    assert capped.times[merged] == "2026-01-01T00:00:02Z"
    assert [m.name for m in capped.owners if m.operation == UPDATE] == [*names[3:], merged.name]
    assert Manager("a", APPLY) in capped.owners
    again = entries.capped(
        Managed(
            {**capped.owners, Manager("new", UPDATE, "v1"): Owned(FIELDS, applied=False)},
            {**capped.times, Manager("new", UPDATE, "v1"): "2026-02-01T00:00:00Z"},
        )
    )
    assert len([m for m in again.owners if m.operation == UPDATE]) == 10
    assert "f:m03" in again.owners[merged].fields


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("kubectl/v1.34.0 (linux/amd64)", "kubectl"),
        ("Mozilla", "Mozilla"),
        ("", "unknown"),
        ("a\x07b/1", "ab"),
        ("é" * 100, "é" * 64),
        ("x" * 4000, "x" * 128),
    ],
)
def test_a_manager_is_named_by_its_user_agent(agent: str, name: str) -> None:
    assert entries.name_from_agent(agent) == name


def test_one_conflict_is_told_in_a_line() -> None:
    error = entries.conflict(ConflictError({Manager("hpa", UPDATE, "v1", "scale"): FIELDS}))
    who = '"hpa" with subresource "scale" using v1'
    assert (error.code, error.reason) == (409, "Conflict")
    assert str(error) == f"Apply failed with 1 conflict: conflict with {who}: .spec.replicas"
    assert error.to_status()["details"]["causes"] == [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {who}",
            "field": ".spec.replicas",
        }
    ]


def test_several_conflicts_are_listed_by_manager_within_bounds() -> None:
    many = {f"f:{n:04}": {} for n in range(5000)}
    error = entries.conflict(
        ConflictError({Manager("b", APPLY): many, Manager("a", APPLY): {"f:x": {}}})
    )
    lines = str(error).splitlines()
    assert lines[:4] == [
        'Apply failed with 5001 conflicts: conflicts with "a":',
        "- .x",
        'conflicts with "b":',
        "- .0000",
    ]
    assert lines[-1] == "- and 4901 more"
    assert len(error.causes) == 1000


def test_more_managers_than_an_object_may_have_are_refused() -> None:
    entries.require_bounded([entry()] * 100, 60_000)
    for listed, values in (([entry()] * 101, 0), ([], 60_001)):
        with pytest.raises(ApiError) as refused:
            entries.require_bounded(listed, values)
        assert refused.value.code == 413
