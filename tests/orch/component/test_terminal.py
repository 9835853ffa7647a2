"""What a terminal would act on is shown, not sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.component.terminal import escape_control_characters


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain text, größer, 日本", "plain text, größer, 日本"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\r\nb\tc", "a\\r\\nb\\tc"),
        ("\x9b31m", "\\x9b31m"),  # the one-byte form of ESC [
        ("user\u202etxt.exe", "user\\u202etxt.exe"),  # turns the direction of reading
        ("\u2028", "\\u2028"),
        ("\udcff", "\\udcff"),  # a byte of a file name that is no UTF-8
    ],
)
def test_only_what_is_printable_stays(text: str, shown: str) -> None:
    assert escape_control_characters(text) == shown


@given(st.text())
def test_the_result_is_always_one_printable_line(text: str) -> None:
    assert escape_control_characters(text).isprintable()
