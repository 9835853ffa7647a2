from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orch.component import yaml_file

SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(
    ["y", "1e3", "0o7", "2026-01-31", "~", "a: b", "- a", "x\n", "x\n\n", " x\ny", "x \ny"]
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    assert yaml.safe_load(yaml_file.dump(value) + "\n") == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": "1", "a": "x"}, 'a: x\nb: "1"'),
        ([{"a": ""}, "y", "1e3", "true", "1:30"], '- a: ""\n- "y"\n- "1e3"\n- "true"\n- "1:30"'),
        ({"a": "one\ntwo\n"}, "a: |\n  one\n  two"),
        ({"a": "one\ntwo"}, "a: |-\n  one\n  two"),
        ({"a": "2026-11-22T00:08:51Z"}, 'a: "2026-11-22T00:08:51Z"'),
        ({"a": [{}, []]}, "a:\n- {}\n- []"),
        ({"a": "word " * 40 + "."}, "a: " + "word " * 40 + "."),
        ({"a": "\x1b[31m"}, 'a: "\\e[31m"'),
    ],
)
def test_it_looks_as_kubectl_writes_it(value: Any, text: str) -> None:
    assert yaml_file.dump(value) == text


@pytest.mark.parametrize(
    "text",
    ["12e3", ".5e3", "+.5", "-.5", ".5_0", "1__0", "1e_3", "08", "0o17", "-0o17", "0O17", "0X1F",
     "+0x1F", "0x_f", "0B11", "-0b1", "+.INF", ".NaN"],
)  # fmt: skip
def test_text_that_kubectl_reads_as_a_number_is_quoted(text: str) -> None:
    assert yaml_file.dump([text]) == f'- "{text}"'


@pytest.mark.parametrize("text", ["0x1p3", ".e3", "._5", "1.2.3", "v1", "0b", "10.0.0.1"])
def test_other_text_is_plain(text: str) -> None:
    assert yaml_file.dump({"a": text}) == f"a: {text}"


def test_what_stands_twice_is_written_twice() -> None:
    same = {"x": [1]}
    assert yaml_file.dump([same, same]) == "- x:\n  - 1\n- x:\n  - 1"
