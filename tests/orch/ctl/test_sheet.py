from __future__ import annotations

from typing import Any

import pytest

from orch.ctl import sheet
from orch.wire.names import ANNOTATION_LAST_APPLIED


def test_a_column_reaches_as_far_as_its_cells_follow_one_another() -> None:
    lines = ["Name:\tn1", "Labels:\ta=1", "\tb=2", "alone", "A:\tx\ty", "Long:\txx\ty", "Z:\tx"]
    assert sheet.aligned(lines).splitlines() == [
        "Name:    n1",
        "Labels:  a=1",
        "         b=2",
        "alone",
        "A:     x   y",
        "Long:  xx  y",
        "Z:     x",
    ]


def test_a_text_of_several_lines_is_as_many_lines() -> None:
    assert sheet.aligned(["k:\tone\ntwo", "", "last\n"]) == "k:  one\ntwo\n\nlast\n"


def test_values_cannot_steer_the_terminal() -> None:
    assert sheet.aligned(["A:\t\x1b[2J\r\x07"]) == "A:  ^[[2J\\r\\x07"


def test_fields_and_tables() -> None:
    assert sheet.field("A", "b", 1) == "  A:\tb"
    assert sheet.optional("A", "") == []
    assert sheet.listed("A", []) == ["A:\t<none>"]
    assert sheet.pairs("A", {"b": 1, "a": "x"}) == ["A:\ta=x", "\tb=1"]
    assert sheet.table("T", ("A", "Long"), [("1", "2")]) == [
        "T:", "  A\tLong", "  -\t----", "  1\t2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("x\n", ["note: x"]),
        ("a\nb\n", ["note:", "  a", "  b"]),
        ("y" * 135, ["note:", "  " + "y" * 135]),
        ("y" * 139, ["note:", "  " + "y" * 138 + "..."]),
        ("y" * 137 + "é", ["note:", "  " + "y" * 137 + "..."]),
    ],
)
def test_an_annotation_is_told_on_its_line_or_below(value: str, told: list[str]) -> None:
    annotations = {"note": value, ANNOTATION_LAST_APPLIED: "{}"}
    record: dict[str, Any] = {"metadata": {"name": "x", "annotations": annotations}}
    first, *more = told
    assert sheet.head(record) == [
        "Name:\tx", "Namespace:\t", "Labels:\t<none>", f"Annotations:\t{first}",
        *(f"\t{line}" for line in more),
    ]  # fmt: skip
    assert sheet.head(record, namespaced=False)[1] == "Labels:\t<none>"


@pytest.mark.usefixtures("in_tokyo")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-01-31T20:00:00Z", "Sun, 01 Feb 2026 05:00:00 +0900"),
        ("2026-01-31T20:00:00.123456Z", "Sun, 01 Feb 2026 05:00:00 +0900"),
        ("", "Mon, 01 Jan 0001 00:00:00 +0000"),
        ("soon", "soon"),
    ],
)
def test_times_are_local(text: str, shown: str) -> None:
    assert sheet.moment(text) == shown
