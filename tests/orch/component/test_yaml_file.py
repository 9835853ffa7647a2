"""Strict YAML: JSON's types, no surprises, and the place of every value and error."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.component import yaml_file
from orch.component.yaml_file import YamlError, parse_yaml, read_yaml_file, show_path

SCALARS = [
    ("true", True),
    ("on", "on"),  # YAML 1.1 would say True
    ("0755", "0755"),  # ... 493
    ("1:30", "1:30"),  # ... 90
    ("2024-01-01", "2024-01-01"),  # ... a date
    ("12", 12),
    ("-3", -3),
    ("2.5", 2.5),
    ("1e3", 1000.0),
    ("~", None),
    ("", None),
    ("'12'", "12"),
    ('""', ""),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_a_scalar_has_the_type_that_json_would_give_it(text: str, value: object) -> None:
    read = parse_yaml(f"key: {text}\n", source="f").value["key"]
    assert read == value
    assert type(read) is type(value)


REFUSED = [
    ("a: 1\nb: 2\na: 3\n", "f:3: a: the key is given twice"),
    ("a:\n  b: 1\n  b: 2\n", "f:3: a.b: the key is given twice"),
    ("a: [1", "f:2: did not find expected"),
    ("a: !!python/name:os.system\n", "f:1: tags are not supported"),
    ("? [x]\n: y\n", "f:1: a key must be text"),
    ("a: &x [*x]\n", "too many or too deeply nested"),
    ("\x00", "f:"),
    ("a: !!int b\n", "f:1: it has the tag of a number and is none"),
    ("a: !!float .inf\n", "f:1: it has the tag of a number and is none"),
    ("a: 1\nb: 1e999\n", "f:2: the number is too large; quote a text"),
    ("a: " + "1" * 200, "f:1: the number is too long; quote a text"),
    (f"{'k' * 999}: 1\n{'k' * 999}: 2\n", f"f:2: {'k' * 200}: the key is given twice"),
    ("# one\n%TAG !a! tag:b\n---\nc: 1\n", "f:2: %TAG is not supported"),
    ("a: 1\n...\n%TAG !a! tag:b\n---\nc: 1\n", "f:3: %TAG is not supported"),
    ("a: 1\n---\nb: 2\n", "f:2: expected a single document in the stream, but found another"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_bad_input_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(text, source="f")
    assert message in str(caught.value)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused_before_the_composer_overflows_the_stack(opening: str) -> None:
    with pytest.raises(YamlError, match="f:1: too many or too deeply nested"):
        parse_yaml(opening * 1_000_000, source="f")


@pytest.mark.slow
def test_a_large_flat_file_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(YamlError, match="too many"):
        parse_yaml("[" + "1," * 3_000_000 + "]", source="f")


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    assert parse_yaml(b"\xef\xbb\xbfkind: x\n", source="f").value == {"kind": "x"}


@pytest.mark.slow
def test_aliases_cannot_grow_a_small_file_into_a_large_value() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(YamlError, match="too many"):
        parse_yaml("\n".join(lines), source="bomb")


@pytest.mark.parametrize("place", ["b: [{}]", "b: {{{}}}"])
def test_aliases_of_a_long_text_cannot_either(place: str) -> None:
    """67 kB became 190 MB, and three times as much twelve gigabytes."""
    used = ", ".join(f"k{number}: *a" if "{{" in place else "*a" for number in range(400))
    with pytest.raises(YamlError, match="aliases make it too large"):
        parse_yaml(f"a: &a {'x' * 10_000}\n{place.format(used)}", source="bomb")


@pytest.mark.parametrize("encode", [str.encode, lambda text: text.encode("utf-16")])
def test_many_directives_are_refused_before_they_are_compared(
    encode: Callable[[str], bytes],
) -> None:
    """The C parser compares each with all others: for 22 s where there were 60,000."""
    many = "".join(f"%TAG !{number}! a\n" for number in range(100_000))
    with pytest.raises(YamlError, match="f:1: %TAG is not supported"):
        parse_yaml(encode(f"{many}--- a"), source="f")


def test_a_directive_in_a_text_is_none() -> None:
    text = "a: |\n  %TAG !a! b\nc: 50%TAG\n"
    assert parse_yaml(text, source="f").value == {"a": "%TAG !a! b\n", "c": "50%TAG"}


def test_a_long_text_stays_one() -> None:
    texts = ["1" * 200 + "x", "-" * 200, "1." + "1" * 200, "true" * 50]
    read = parse_yaml("".join(f"- {text}\n" for text in texts), source="f").value
    assert read == texts
    assert parse_yaml(yaml_file.dump(texts), source="f").value == texts


def test_the_line_of_a_field_and_of_its_nearest_ancestor_is_known() -> None:
    document = parse_yaml("a:\n  b:\n    - c\n    - d\n", source="f")
    assert document.place(("a", "b", 1)) == "f:4"
    assert document.place(("a", "b", "missing")) == "f:2"
    assert show_path(("a", "b", 1, "c")) == "a.b[1].c"


def test_a_file_over_the_size_limit_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_file, "MAX_BYTES", 10)
    path = tmp_path / "big.yaml"
    path.write_text("a: 12345678901")
    with pytest.raises(YamlError, match=r"big\.yaml: larger than"):
        read_yaml_file(path)


# A secret written without its quotes is YAML of another kind.
UNQUOTED = (
    "!{}",
    "*{}",
    "&{}",
    "@{}",
    "%{}",
    "`{}",
    "{{{}",
    "[{}",
    "|{}",
    ">{}",
    '"{}',
    "'{}",
    "{}: x",
)


@pytest.mark.parametrize("form", UNQUOTED)
@pytest.mark.parametrize("secret", ["hunter2hunter2", "7" * 50])
def test_an_error_quotes_nothing_of_a_value(form: str, secret: str) -> None:
    with pytest.raises(YamlError) as caught:
        parse_yaml(f"token: {form.format(secret)}\nother: [\n", source="f")
    assert secret[:8] not in str(caught.value)
    assert str(caught.value).startswith("f:")


@given(st.binary(max_size=200))
def test_any_bytes_parse_or_are_refused(raw: bytes) -> None:
    try:
        parse_yaml(raw, source="f")
    except YamlError as error:
        assert str(error).startswith("f")
