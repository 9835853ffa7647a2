from __future__ import annotations

from orch.ctl import sheet


def test_values_are_aligned_and_continue_below_themselves() -> None:
    assert sheet.fields(
        [("Name", "n1"), ("Labels", ["a=1", "b=2"]), ("Empty", ""), ("No", [])]
    ) == [
        "Name:    n1",
        "Labels:  a=1",
        "         b=2",
        "Empty:   <none>",
        "No:      <none>",
    ]


def test_a_table_has_a_line_under_its_header() -> None:
    assert sheet.table("T", ("A", "Long"), [("1", "2")]) == [
        "T:",
        "  A     Long",
        "  -     ----",
        "  1     2",
    ]
    assert sheet.table("T", ("A",), []) == ["T:  <none>"]


def test_titles_without_fields_say_none() -> None:
    assert sheet.titled("T", [("a", "b")]) == ["T:", "  a:  b"]
    assert sheet.titled("T", []) == ["T:  <none>"]


def test_values_cannot_steer_the_terminal() -> None:
    assert sheet.fields([("A", "\x1b[2J")]) == ["A:  \\x1b[2J"]


def test_labels_are_sorted_pairs() -> None:
    assert sheet.pairs_of({"b": 1, "a": "x"}) == ["a=x", "b=1"]
