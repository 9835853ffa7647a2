from __future__ import annotations

from typing import Any

import pytest

from orch.wire import raw

RECORD = {"a": {"b": {"c": "text", "n": 3}}, "l": [{"x": 1}, "stray", None], "none": None}


@pytest.mark.parametrize(
    ("path", "found"),
    [(("a", "b", "c"), "text"), (("a", "x", "c"), None), (("l", "x"), None), (("none", "x"), None)],
)
def test_a_missing_part_of_a_path_gives_none(path: tuple[str, ...], found: Any) -> None:
    assert raw.value(RECORD, *path) == found


def test_values_of_another_type_read_as_absent() -> None:
    assert raw.text(RECORD, "a", "b", "n") == ""
    assert raw.number(RECORD, "a", "b", "c") == 0
    assert raw.mapping(RECORD, "l") == {}
    assert raw.records(RECORD, "a") == []
    assert raw.text("not a record", "a") == ""


def test_only_the_objects_or_texts_of_a_list_are_given() -> None:
    assert raw.records(RECORD, "l") == [{"x": 1}]
    assert raw.texts(RECORD, "l") == ("stray",)
    assert raw.texts(RECORD, "a") == ()
