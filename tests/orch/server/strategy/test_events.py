from __future__ import annotations

import pytest

from orch.server.strategy.events import STRATEGY, last_seen
from orch.wire.times import parse_time

OLD, RECENT, NOW = "2026-01-01T10:59:59Z", "2026-01-01T11:00:01.5Z", "2026-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("event", "seen"),
    [
        ({"lastTimestamp": OLD}, OLD),
        ({"firstTimestamp": OLD, "lastTimestamp": RECENT}, RECENT),
        ({"metadata": {"creationTimestamp": OLD}}, OLD),
        ({"metadata": {"creationTimestamp": OLD}, "eventTime": RECENT}, RECENT),
        ({"lastTimestamp": OLD, "series": {"lastObservedTime": RECENT}}, RECENT),
        ({"lastTimestamp": "no time"}, None),
        ({"lastTimestamp": "no time", "firstTimestamp": OLD}, OLD),
        ({"lastTimestamp": "2999-01-01T00:00:00Z"}, NOW),  # else it would be kept for as long
        ({}, None),
    ],
)
def test_an_event_was_last_seen_at_the_latest_of_its_times(event, seen) -> None:
    assert last_seen(event, parse_time(NOW)) == (seen and parse_time(seen))


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
