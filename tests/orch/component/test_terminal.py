from __future__ import annotations

import pytest

from orch.component.terminal import one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é ✓", "plain é ✓"),
        ("red \x1b[31m", "red \\x1b[31m"),
        ("a\tb\nc\x00\x7f", "a\\tb\\nc\\x00\\x7f"),
        ("\x9b31m \u202e", "\\x9b31m \\u202e"),
        ("\udcff", "\\udcff"),
    ],
)
def test_only_printable_characters_reach_the_terminal(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_line_stays_one_line() -> None:
    assert one_line("  a\nb\r\n\tc\x1b ") == "a b c\\x1b"
