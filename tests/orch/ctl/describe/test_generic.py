from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from orch.ctl.describe import generic
from orch.ctl.describe.tab_writer import TabWriter


def _lines(record: dict[str, Any]) -> list[str]:
    writer = TabWriter()
    generic.write(writer, record)
    return writer.text().splitlines()


def test_every_field_is_shown() -> None:
    record: dict[str, Any] = {
        "kind": "Widget",
        "apiVersion": "example.com/v1",
        "metadata": {"name": "x", "labels": {"a": "b"}, "uid": "u", "managedFields": [1]},
        "spec": {"startTime": "t", "on": True, "off": None, "empty": {}, "none": [],
                 "parts": [{"a": 1, "b": {"c": 2}}, "d", ["e", 3]]},
        "text": "one\ntwo",
    }  # fmt: skip
    assert _lines(record) == [
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
        "               two",
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
    assert generic.title(name) == title


def test_a_secret_shows_sizes_only() -> None:
    data = {"key": "aGlkZGVu", "odd": "not bäse64!"}
    record = {"kind": "Secret", "metadata": {"name": "s"}, "data": data, "type": "Opaque"}
    assert _lines(record)[4:] == [
        "Data:", "  Key:  6 bytes", "  Odd:  11 bytes", "Kind:   Secret", "Metadata:",
        "Type:  Opaque",
    ]  # fmt: skip


def test_depth_is_bounded() -> None:
    nested: dict[str, Any] = {}
    for _ in range(5000):
        nested = {"a": nested}
    assert _lines({"kind": "Widget", "spec": nested})[-1].strip() == "..."


def test_events_are_a_table_the_latest_last() -> None:
    now = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
    found = [
        {"type": "Warning", "reason": "Late", "lastTimestamp": "2026-01-31T11:59:00Z", "count": 3,
         "firstTimestamp": "2026-01-31T11:58:00Z", "source": {"component": "agent"},
         "message": " m\n"},
        {"type": "Normal", "reason": "Early", "eventTime": "2026-01-31T11:50:00.000000Z",
         "reportingComponent": "scheduler"},
    ]  # fmt: skip
    for events, lines in (
        (found, [
            "Events:",
            "  Type     Reason  Age                 From       Message",
            "  ----     ------  ----                ----       -------",
            "  Normal   Early   10m                 scheduler",
            "  Warning  Late    60s (x3 over 2m0s)  agent      m",
        ]),
        ([], ["Events:  <none>"]),
    ):  # fmt: skip
        writer = TabWriter()
        generic.write_events(writer, events, now)
        shown = [line.replace("2m0s", "2m") for line in writer.text().splitlines()]
        assert [line.split() for line in shown] == [
            line.replace("2m0s", "2m").split() for line in lines
        ]
