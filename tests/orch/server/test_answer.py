from __future__ import annotations

import pytest

from orch.server.answer import warning_headers


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ('unknown field "a"', r'299 - "unknown field \"a\""'),
        ("a\r\nSet-Cookie: b", '299 - "a??Set-Cookie: b"'),
        ("ü\ud800", r'299 - "\\xfc\\ud800"'),
    ],
)
def test_a_warning_is_one_line_of_plain_text(text: str, header: str) -> None:
    assert warning_headers([text, text]) == [header]


def test_many_and_long_warnings_are_cut() -> None:
    headers = warning_headers([f"{number}{'x' * 300}" for number in range(100)])
    assert len(headers) == 16
    assert sum(map(len, headers)) < 5000
