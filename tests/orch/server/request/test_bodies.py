from __future__ import annotations

import pytest

from orch.server.request.bodies import decode_object, drop_nulls
from orch.wire.errors import ApiError
from tests.orch.server.request.test_protobuf import envelope, field


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
    ("body", "content_type", "code"),
    [
        (b"", "application/json", 400),
        (b'{"a":1', "application/json", 400),
        (b'"text"', "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"a":1}', "application/vnd.kubernetes.protobuf", 400),
        (b"a: 1", "application/yaml", 415),
        (b"a=1", "application/x-www-form-urlencoded", 415),
    ],
)
def test_what_is_no_object_is_refused(body, content_type, code) -> None:
    with pytest.raises(ApiError) as caught:
        decode_object(body, content_type)
    assert caught.value.code == code


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
