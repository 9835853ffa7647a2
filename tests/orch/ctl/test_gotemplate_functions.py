from __future__ import annotations

from typing import Any

import pytest

from orch.ctl.gotemplate_functions import FUNCTIONS, text
from orch.ctl.gotemplate_syntax import GoTemplateError


# What Go's text/template and fmt give; https://pkg.go.dev/text/template#hdr-Functions.
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("print", (1, 2, "a", "b", 3), "1 2ab3"),
        ("println", ("a", 1, 2, "b"), "a 1 2 b\n"),
        ("printf", ("%s %v %q|%5d|%-3s|%.1f %t%%", "a", 3, "b", 7, "c", 1.25, True),
         'a 3 "b"|    7|c  |1.2 true%'),
        ("eq", ("a", "b", "a"), True),
        ("eq", (None, "x"), False),
        ("ne", (1, 2), True),
        ("lt", (1, 2), True),
        ("ge", ("a", "b"), False),
        ("len", ("é",), 2),
        ("len", ([1],), 1),
        ("index", ({"a": [5]}, "a", 0), 5),
        ("index", ({}, "a"), None),
        ("slice", ("abcd", 1, 3), "bc"),
        ("slice", ([1, 2],), [1, 2]),
        ("html", ("<a href='x'>",), "&lt;a href=&#39;x&#39;&gt;"),
        ("urlquery", ("a b&",), "a+b%26"),
        ("exists", ({"a": [{"b": None}]}, "a", 0, "b"), True),
        ("exists", ({"a": 1}, "a", "b"), False),
        ("base64decode", ("YQ==",), "a"),
    ],
)  # fmt: skip
def test_a_function_gives_what_it_gives_in_go(
    name: str, arguments: tuple[Any, ...], expected: Any
) -> None:
    assert FUNCTIONS[name](*arguments) == expected


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("printf", ("%d", "a"), "printf cannot write a as %d"),
        ("printf", ("%d", 1.5), "printf cannot write 1.5 as %d"),
        ("printf", ("%s",), "printf has no value for %s"),
        ("printf", ("", 1), "1 values more than its text takes"),
        ("eq", (1,), "eq needs two values"),
        ("eq", (1, "1"), "1 and 1 are of different types"),
        ("lt", (None, None), "<nil> and <nil> have no order"),
        ("len", (None,), "len: <nil> has no length"),
        ("index", ([1], 1), "there is no element 1, there are 1"),
        ("index", ("a", "b"), "index: a has no b"),
        ("slice", ("ab", 1, 3), "[1:3] is not within 2 elements"),
        ("slice", (None,), "slice takes a list or a text"),
        ("base64decode", ("%",), "the value is not base64"),
    ],
)
def test_what_does_not_fit_says_why(name: str, arguments: tuple[Any, ...], why: str) -> None:
    with pytest.raises(GoTemplateError) as caught:
        FUNCTIONS[name](*arguments)
    assert why in str(caught.value)


def test_values_are_written_as_go_does() -> None:
    assert text({"b": [1, True, None], "a": {}}) == "map[a:map[] b:[1 true <nil>]]"
