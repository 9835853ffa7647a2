from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.server.request.bodies import (
    MAX_BYTES,
    MAX_VALUES,
    decode_object,
    drop_nulls,
    require_bounded,
    structure,
    values_in,
)
from orch.wire.errors import ApiError
from tests.orch.server.request.test_protobuf import envelope, field

UNRECOGNIZED = "the object provided is unrecognized (must be of type Pod)"


@pytest.mark.parametrize(
    ("body", "content_type", "document"),
    [
        (b'{"a":1}', "application/json", {"a": 1}),
        (b'{"a":1}', "application/json; charset=utf-8", {"a": 1}),
        (b'{"a":1}', "", {"a": 1}),
        (b'{"a":null,"b":{"c":null}}', "application/json", {"b": {}}),
        (
            envelope("v1", "DeleteOptions", field(1, 5)),
            "application/vnd.kubernetes.protobuf",
            {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5},
        ),
    ],
)
def test_bodies_are_read_by_their_content_type(body, content_type, document) -> None:
    assert decode_object(body, content_type) == document


@pytest.mark.parametrize(
    ("body", "content_type", "code", "text"),
    [
        (b"", "application/json", 400, UNRECOGNIZED),
        (b'{"a":1', "application/json", 400, UNRECOGNIZED),
        (b"apiVersion: v1", "application/json", 400, f"{UNRECOGNIZED}: couldn't get version/kind"),
        (b'"text"', "application/json", 400, UNRECOGNIZED),
        (b"\xff", "application/json", 400, UNRECOGNIZED),
        (b'{"a":1}', "application/vnd.kubernetes.protobuf", 400, ""),
        (b"a=1", "application/x-www-form-urlencoded", 415, ""),
    ],
)
def test_what_is_no_object_is_refused(body, content_type, code, text) -> None:
    with pytest.raises(ApiError) as caught:
        decode_object(body, content_type, "Pod")
    assert (caught.value.code, caught.value.message.startswith(text)) == (code, True)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (None, None),
        ({"a": None, "b": 1}, {"b": 1}),
        ({"a": {"b": None, "c": [None, {"d": None}]}}, {"a": {"c": [None, {}]}}),
        ({"a": "", "b": 0, "c": False, "d": []}, {"a": "", "b": 0, "c": False, "d": []}),
    ],
)
def test_null_fields_are_dropped_and_nothing_else(sent, kept) -> None:
    assert drop_nulls(sent) == kept


def test_data_deeper_than_any_object_is_refused() -> None:
    deep: object = "x"
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ApiError, match="nested deeper"):
        drop_nulls(deep)


def numbers(count: int) -> bytes:
    return b'{"a":[' + b"0," * (count - 1) + b"0]}"


def test_a_body_of_too_many_values_is_refused_before_it_is_parsed() -> None:
    assert len(decode_object(numbers(MAX_VALUES - 10), "")["a"]) == MAX_VALUES - 10
    for body in (numbers(MAX_VALUES + 10), b'{"a":[' + b'"",' * 60_000, b"[{" * 30_000):
        with pytest.raises(ApiError, match=f"more than {MAX_VALUES} values") as caught:
            decode_object(body, "")
        assert (caught.value.code, caught.value.reason) == (413, "RequestEntityTooLarge")


@pytest.mark.parametrize("text", [",[{" * 50_000, '",[' * 50_000, "\\" * 9 + '",' * 50_000 + "\\"])
def test_commas_and_brackets_in_texts_are_no_values(text: str) -> None:
    body = orjson.dumps({"a": text, "b": [text]})
    assert decode_object(body, "") == {"a": text, "b": [text]}


@given(st.recursive(
    st.none() | st.booleans() | st.text('a,[]{}"\\\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('a,[{"\\'), inner),
))  # fmt: skip
def test_no_value_escapes_the_count(data: object) -> None:
    def count(value: object) -> int:
        inner = value.values() if isinstance(value, dict) else value
        return 1 + sum(map(count, inner)) if isinstance(value, dict | list) else 1

    assert values_in(structure(orjson.dumps(data))) >= count(data) - 1
    assert values_in(orjson.dumps(data)) >= count(data) - 1


def test_a_text_larger_than_any_body_is_not_stored() -> None:
    with pytest.raises(ApiError, match="larger than 3145728 bytes"):
        require_bounded(b" " * (MAX_BYTES + 1))
