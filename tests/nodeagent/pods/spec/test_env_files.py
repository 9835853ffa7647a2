"""Files of variables, in the format that the reference documents for its release 1.36."""

from __future__ import annotations

import pytest

from nodeagent.pods.spec import env_files
from nodeagent.pods.spec.env import SpecError

GOOD = [
    ("", {}),
    ("A='1'", {"A": "1"}),
    ("  A = '1'  \nB=''\n", {"A": "1", "B": ""}),
    ("# comment\n\n  # another\n \t\nA='# none'", {"A": "# none"}),
    ("A='line1\nline2'\nB='\\n$A \"x\"'\n", {"A": "line1\nline2", "B": '\\n$A "x"'}),
    ("A='first'\nA='second'", {"A": "first"}),
]


@pytest.mark.parametrize(("text", "values"), GOOD)
def test_values_are_taken_as_they_stand_between_quotes(text: str, values: dict[str, str]) -> None:
    assert env_files.parse(text) == values


@pytest.mark.parametrize(
    "line",
    [
        "A=1",
        'A="1"',
        "A='1''2'",
        "A='1'$B",
        "A=${B}",
        "A",
        "='1'",
        "A B='1'",
        "A='1",
        "export A='1'",
    ],
)
def test_any_other_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(SpecError, match="line 2 is not NAME='value'"):
        env_files.parse(f"GOOD='1'\n{line}\n")
