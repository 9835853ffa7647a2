from __future__ import annotations

from datetime import UTC, datetime

from orch.ctl import describe_events, sheet

NOW = datetime(2026, 1, 31, 12, 1, 0, tzinfo=UTC)


def test_events_are_told_the_latest_last() -> None:
    events = [
        {"type": "Warning", "reason": "Late", "lastTimestamp": "2026-01-31T12:00:30Z", "count": 3,
         "firstTimestamp": "2026-01-31T12:00:00Z", "source": {"component": "agent", "host": "n1"}},
        {"type": "Normal", "reason": "Once", "lastTimestamp": "2026-01-31T12:00:20Z", "count": 1,
         "firstTimestamp": "2026-01-31T12:00:20Z", "message": "m\n"},
        {"type": "Normal", "reason": "New", "eventTime": "2026-01-31T12:00:10.000000Z",
         "reportingComponent": "controller"},
        {"reason": "Series", "eventTime": "2026-01-31T12:00:10.000000Z",
         "series": {"count": 2, "lastObservedTime": "2026-01-31T12:00:55.000000Z"}},
    ]  # fmt: skip
    assert sheet.aligned(describe_events.lines(events, NOW)).splitlines() == [
        "Events:",
        "  Type     Reason  Age                From        Message",
        "  ----     ------  ----               ----        -------",
        "  Normal   New     50s                controller",
        "           Series  5s (x2 over 50s)",
        "  Normal   Once    40s                            m",
        "  Warning  Late    30s (x3 over 60s)  agent",
    ]


def test_no_events_are_said_so() -> None:
    assert describe_events.lines([], NOW) == ["Events:\t<none>"]
