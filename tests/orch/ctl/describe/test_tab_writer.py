from __future__ import annotations

import time

import pytest

from orch.ctl.describe import tab_writer
from orch.ctl.describe.tab_writer import TabWriter
from orch.wire.names import ANNOTATION_LAST_APPLIED


def _text(*rows: tuple[str, ...]) -> str:
    writer = TabWriter()
    for row in rows:
        writer.line(*row)
    return writer.text()


def test_a_column_spans_neighbouring_lines_that_have_its_cells() -> None:
    rows = [("Name:", "n1"), ("Labels:", "a=1"), ("", "b=2"), ("alone",), ("A:", "x", "y"),
            ("Long:", "xx", "y"), ("Z:", "x")]  # fmt: skip
    assert _text(*rows).splitlines() == [
        "Name:    n1",
        "Labels:  a=1",
        "         b=2",
        "alone",
        "A:     x   y",
        "Long:  xx  y",
        "Z:     x",
    ]


def test_a_text_of_several_lines_is_as_many_lines() -> None:
    assert _text(("k:", "one\ntwo"), ("",), ("last\n",)) == "k:  one\n    two\n\nlast\n"


@pytest.mark.slow
def test_a_value_neither_forges_lines_nor_takes_long() -> None:
    assert _text(("A:", "x\nName:\tadmin")) == "A:  x\n    Name:\\tadmin"
    began_s = time.process_time()
    _text(("A:", "\t" * 100_000 + "\n" * 100_000), ("B:", "c"))
    assert time.process_time() - began_s < 5


def test_values_cannot_steer_the_terminal() -> None:
    assert _text(("A:", "\x1b[2J\r\x07")) == "A:  ^[[2J\\r\\x07"


def test_fields_and_tables() -> None:
    writer = TabWriter()
    writer.field("A", "b", 1)
    writer.optional("A", "")
    writer.listed("None", [])
    writer.pairs("P", {"b": 1, "a": "x"})
    writer.header(("A", "Long"))
    assert writer.text().splitlines() == [
        "  A:   b", "None:  <none>", "P:     a=x", "       b=1", "  A    Long", "  -    ----",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x\n", ["note: x"]),
        ("a\nb\n", ["note:", "  a", "  b"]),
        ("y" * 140, [f"note: {'y' * 140}"]),
        ("y" * 141, ["note:", "  " + "y" * 140 + "..."]),
    ],
)
def test_an_annotation_stands_on_its_line_or_below(value: str, shown: list[str]) -> None:
    annotations = {"note": value, ANNOTATION_LAST_APPLIED: "{}"}
    writer = TabWriter()
    writer.labels({"metadata": {"name": "x", "annotations": annotations}})
    first, *more = shown
    assert writer.text().splitlines() == [
        "Labels:       <none>", f"Annotations:  {first}", *(f"{' ' * 14}{line}" for line in more),
    ]  # fmt: skip


@pytest.mark.usefixtures("in_tokyo")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-01-31T20:00:00Z", "Sun, 01 Feb 2026 05:00:00 +0900"),
        ("2026-01-31T20:00:00.123456Z", "Sun, 01 Feb 2026 05:00:00 +0900"),
        ("", "Mon, 01 Jan 0001 00:00:00 +0000"),
        ("soon", "soon"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),  # the next year in Tokyo
    ],
)
def test_times_are_local(text: str, shown: str) -> None:
    assert tab_writer.local_time(text) == shown
