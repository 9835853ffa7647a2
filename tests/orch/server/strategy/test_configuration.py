from __future__ import annotations

from typing import Any

import pytest

from orch.server.strategy.configuration import CONFIG_MAP_STRATEGY, MAX_BYTES

FROZEN = {"data": {"a": "1"}, "immutable": True}


# The reference system's pkg/apis/core/validation, TestValidateConfigMap.
@pytest.mark.parametrize(
    ("new", "old", "fields"),
    [
        ({}, None, []),
        ({"data": {"a.conf": "x"}, "binaryData": {"b": "eA=="}}, None, []),
        ({"data": {"a b": ""}}, None, ["data[a b]"]),
        ({"data": {"": ""}}, None, ["data[]"]),
        ({"data": {"..": ""}}, None, ["data[..]"]),
        ({"binaryData": {"..x": ""}}, None, ["binaryData[..x]"]),
        ({"data": {"k" * 254: ""}}, None, [f"data[{'k' * 254}]"]),
        ({"data": {"a": ""}, "binaryData": {"a": ""}}, None, ["data[a]"]),
        ({"data": {"a": "x" * MAX_BYTES}}, None, []),
        ({"data": {"a": "x" * MAX_BYTES, "b": "x"}}, None, ["data"]),
        (FROZEN, FROZEN, []),
        ({"data": {"a": "2"}, "immutable": True}, FROZEN, ["data"]),
        ({"data": {"a": "1"}}, FROZEN, ["immutable"]),
        ({"data": {"a": "2"}}, {"data": {"a": "1"}}, []),
    ],
)
def test_what_a_config_map_may_not_have(new: Any, old: Any, fields: list[str]) -> None:
    assert [cause.field for cause in CONFIG_MAP_STRATEGY.validate(new, old)] == fields
