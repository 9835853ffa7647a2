from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orch.server.strategy.events import STRATEGY, is_expired

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
OLD, RECENT = "2026-01-01T10:59:59Z", "2026-01-01T11:00:01Z"


@pytest.mark.parametrize(
    ("event", "expired"),
    [
        ({"lastTimestamp": OLD}, True),
        ({"lastTimestamp": RECENT}, False),
        ({"firstTimestamp": OLD, "lastTimestamp": RECENT}, False),
        ({"metadata": {"creationTimestamp": OLD}}, True),
        ({"metadata": {"creationTimestamp": OLD}, "eventTime": RECENT}, False),
        ({"lastTimestamp": OLD, "series": {"lastObservedTime": RECENT}}, False),
        ({"lastTimestamp": "no time"}, False),
        ({"lastTimestamp": "no time", "firstTimestamp": OLD}, True),
        ({}, False),
    ],
)
def test_an_event_is_kept_an_hour_after_it_was_last_seen(event, expired) -> None:
    assert is_expired(event, NOW) is expired


@pytest.mark.parametrize(
    ("involved", "fields"),
    [
        ({}, []),
        ({"namespace": ""}, []),
        ({"namespace": "ns"}, []),
        ({"namespace": "other"}, ["involvedObject.namespace"]),
    ],
)
def test_an_event_lies_in_the_namespace_of_what_it_is_about(involved, fields) -> None:
    event = {"metadata": {"namespace": "ns"}, "involvedObject": involved}
    assert [cause.field for cause in STRATEGY.validate(event, None)] == fields
