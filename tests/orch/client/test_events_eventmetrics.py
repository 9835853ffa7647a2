"""What could not be told stands on the page of metrics."""

from orch.client.events import EventMetrics, EventRecorder
from orch.component.diagnostics.metrics import Registry


def test_dropped_events_are_counted_as_they_are_when_the_page_is_asked_for() -> None:
    events, registry = EventRecorder(None, "x"), Registry()
    registry.register(EventMetrics(events))
    events.dropped = 3
    text = registry.render("")[0].decode()
    assert "# HELP orch_events_dropped_total [ALPHA] " in text
    assert "orch_events_dropped_total 3.0" in text
