from __future__ import annotations

from typing import Any

import pytest

from orch.ctl import describe_object, sheet


def test_what_is_not_known_is_shown_whole() -> None:
    record: dict[str, Any] = {
        "kind": "Widget",
        "apiVersion": "example.com/v1",
        "metadata": {"name": "x", "labels": {"a": "b"}, "uid": "u", "managedFields": [1]},
        "spec": {"startTime": "t", "on": True, "off": None, "empty": {}, "none": [],
                 "parts": [{"a": 1, "b": {"c": 2}}, "d", ["e", 3]]},
        "text": "one\ntwo",
    }  # fmt: skip
    assert sheet.aligned(describe_object.lines(record)).splitlines() == [
        "Name:         x",
        "Namespace:",
        "Labels:       a=b",
        "Annotations:  <none>",
        "API Version:  example.com/v1",
        "Kind:         Widget",
        "Metadata:",
        "  UID:  u",
        "Spec:",
        "  Empty:",
        "  None:",
        "  Off:  <nil>",
        "  On:   true",
        "  Parts:",
        "    A:  1",
        "    B:",
        "      C:  2",
        "    d",
        "    [e 3]",
        "  Start Time:  t",
        "Text:          one",
        "two",
    ]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("leaseDurationSeconds", "Lease Duration Seconds"), ("apiVersion", "API Version"),
        ("ownerUID", "Owner UID"), ("podCIDRs", "Pod CID Rs"), ("a-b", "A - B"),
        ("X", "X"), ("app.conf", "app.conf"), ("v1", "v1"),
    ],
)  # fmt: skip
def test_the_words_of_a_name_are_set_apart(name: str, title: str) -> None:
    assert describe_object.title(name) == title
