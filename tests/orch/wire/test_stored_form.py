"""Objects of one kind in the words of another, there and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orch.wire.records.core import Event, EventReport
from orch.wire.records.kinds import EVENT_REPORTS, EVENTS
from orch.wire.stored_form import StoredForm

assert EVENT_REPORTS.stored_form is not None
FORM: StoredForm = EVENT_REPORTS.stored_form
OWN, THEIRS = EVENT_REPORTS.api_version, EVENTS.api_version
FIELDS = sorted(set(EventReport.model_fields) - {"apiVersion", "metadata"})


def test_every_field_of_an_event_has_a_name_in_both_groups() -> None:
    """staging/src/k8s.io/api/{core,events}/v1/types.go"""
    renamed = {FORM.names.get(name, name) for name in EventReport.model_fields}
    assert renamed == set(Event.model_fields)


@given(st.dictionaries(st.sampled_from(FIELDS), st.integers()))
def test_an_object_is_the_same_after_both_ways(fields: dict[str, int]) -> None:
    entry = {"apiVersion": OWN, "fieldsV1": {f"f:{name}": {} for name in fields}, "manager": "m"}
    report = {**fields, "apiVersion": OWN, "metadata": {"name": "e", "managedFields": [entry]}}
    stored = FORM.to_stored(report, OWN)
    assert stored["apiVersion"] == THEIRS
    assert stored["metadata"]["managedFields"][0]["apiVersion"] == THEIRS
    assert set(stored) <= set(Event.model_fields)
    assert FORM.from_stored(stored, OWN) == report


def test_a_field_under_the_name_of_the_other_group_is_left_out() -> None:
    assert FORM.to_stored({"note": "n", "message": "m"}, OWN) == {
        "message": "n", "apiVersion": THEIRS,
    }  # fmt: skip
    assert FORM.to_stored({"message": "m"}, OWN) == {"apiVersion": THEIRS}
    assert FORM.from_stored({"note": "n", "count": 1}, OWN) == {
        "deprecatedCount": 1, "apiVersion": OWN,
    }  # fmt: skip


def test_other_managers_and_odd_values_are_as_they_were() -> None:
    odd = [1, {"apiVersion": "x/v1", "fieldsV1": {"f:note": {}}}, {"apiVersion": OWN}]
    converted = FORM.to_stored({"metadata": {"managedFields": odd}}, OWN)
    assert converted["metadata"]["managedFields"] == [*odd[:2], {"apiVersion": THEIRS}]
    assert FORM.to_stored({"metadata": 3}, OWN)["metadata"] == 3
