from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orch.wire.tables.layout import Column, since

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "age"),
    [
        ("2026-01-31T11:59:30Z", "30s"),
        ("2026-01-31T11:59:30.500000Z", "29s"),
        ("2026-01-29T09:00:00Z", "2d3h"),
        ("2026-01-31T12:00:01Z", "0s"),
        ("2026-01-31T13:00:00Z", "<invalid>"),
        ("", "<unknown>"),
        ("yesterday", "<unknown>"),
    ],
)
def test_a_time_on_the_wire_is_shown_as_its_age(moment: str, age: str) -> None:
    assert since(moment, NOW) == age


def test_a_column_has_every_member_clients_read() -> None:
    assert Column("Name", "what", format="name").to_wire() == {
        "name": "Name",
        "type": "string",
        "format": "name",
        "description": "what",
        "priority": 0,
    }
