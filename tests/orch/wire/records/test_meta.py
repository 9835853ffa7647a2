"""Records keep what they do not know, and write only what was set."""

import pytest
from pydantic import ValidationError

from orch.wire.records.meta import ApiObject, ObjectMeta

NEWER = {
    "apiVersion": "v9",
    "kind": "Thing",
    "metadata": {"name": "a", "namespace": "b", "managedFields": [{"manager": "x"}]},
    "spec": {"of": ["a", "newer", {"program": True}]},
}


def test_what_this_release_does_not_know_comes_back_unchanged() -> None:
    assert ApiObject.from_wire(NEWER).to_wire() == NEWER


def test_what_is_not_reported_is_not_written() -> None:
    assert ObjectMeta(name="a", labels=None).to_wire() == {"name": "a"}
    assert ObjectMeta(name="a", labels={}).to_wire() == {"name": "a", "labels": {}}


def test_a_field_that_does_not_fit_is_named() -> None:
    with pytest.raises(ValidationError) as caught:
        ApiObject.from_wire({"metadata": {"labels": {"a": 1}}})
    assert [error["loc"] for error in caught.value.errors()] == [("metadata", "labels", "a")]


def test_absent_labels_and_annotations_are_empty() -> None:
    bare = ObjectMeta(name="a")
    assert (bare.label("x"), bare.annotation("x")) == ("", "")
    given = ObjectMeta(name="a", labels={"x": "1"}, annotations={"x": "2"})
    assert (given.label("x"), given.annotation("x")) == ("1", "2")


def test_the_key_has_the_namespace_where_there_is_one() -> None:
    assert ApiObject.from_wire(NEWER).key == "b/a"
    assert ApiObject(metadata=ObjectMeta(name="n1")).key == "n1"
