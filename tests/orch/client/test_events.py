"""Events are posted once, counted when they repeat, and never waited for."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from orch.client.events import EventMetrics, EventRecorder
from orch.client.transport import TransportError
from orch.component.diagnostics.metrics import Registry
from orch.component.process import loops
from orch.wire.errors import ApiError
from orch.wire.records.core import Event, Node
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod
from tests.fakes.api import FakeApi
from tests.fakes.apistore import fixed_now

NODE = Node(metadata=ObjectMeta(name="n1", uid="u1"))
POD = Pod(metadata=ObjectMeta(name="p1", namespace="ns", uid="u2"))


class Posting:
    def __init__(self) -> None:
        self.api = FakeApi()
        self.recorder = EventRecorder(self.api, "nodeagent", host="n1", now=fixed_now)
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Called in the test, whose clock jumps; fixtures live on the real one."""
        self.tasks.append(loops.spawn(self.recorder.run(), name="events"))

    def events(self) -> list[Event]:
        return self.api.store.all(Event)


@pytest.fixture
async def posting() -> AsyncIterator[Posting]:
    posting = Posting()
    yield posting
    await loops.cancel(*posting.tasks)


pytestmark = pytest.mark.looptime


async def test_a_message_of_any_length_is_cut_before_it_is_remembered(posting: Posting) -> None:
    """Of 4,096 pods that each quote a megabyte the agent would remember gigabytes."""
    posting.start()
    for end in "ab":
        posting.recorder.note(POD, "Warning", "Failed", "x" * 1_000_000 + end)
    await asyncio.sleep(1)
    (event,) = posting.events()
    assert (event.message, event.count) == ("x" * 4096, 2)


async def test_an_object_with_too_many_events_does_not_take_the_place_of_others(
    posting: Posting,
) -> None:
    """A pod's probes may say something else each second, in each of a thousand containers."""
    posting.recorder.note(NODE, "Normal", "NodeNotReady", "first")
    for number in range(5000):
        posting.recorder.note(POD, "Warning", "Unhealthy", f"{number}")
    posting.recorder.note(NODE, "Normal", "NodeReady", "last")
    posting.start()
    await asyncio.sleep(1)
    told = Counter(event.reason for event in posting.events())
    assert told == {"NodeNotReady": 1, "Unhealthy": 200, "NodeReady": 1}
    assert posting.recorder.dropped == 4800


async def test_an_event_names_its_object_its_source_and_its_time(posting: Posting) -> None:
    posting.start()
    posting.recorder.note(NODE, "Normal", "NodeReady", "Node n1 is ready")
    await asyncio.sleep(1)
    (event,) = posting.events()
    assert event.metadata.namespace == "default" and event.metadata.name.startswith("n1.")
    assert event.involvedObject.to_wire() == {
        "kind": "Node",
        "apiVersion": "v1",
        "name": "n1",
        "uid": "u1",
    }
    assert (event.type, event.reason, event.count) == ("Normal", "NodeReady", 1)
    assert event.source and (event.source.component, event.source.host) == ("nodeagent", "n1")
    assert event.firstTimestamp == event.lastTimestamp == "2026-01-01T00:00:00Z"


async def test_an_event_stands_in_the_namespace_of_its_object(posting: Posting) -> None:
    posting.start()
    posting.recorder.note(POD, "Warning", "NodeNotReady", "Node is not ready")
    await asyncio.sleep(1)
    assert [event.metadata.namespace for event in posting.events()] == ["ns"]


async def test_a_repetition_is_counted_and_anything_else_is_another_event(posting: Posting) -> None:
    posting.start()
    for _ in range(3):
        posting.recorder.note(NODE, "Normal", "NodeReady", "ready")
    posting.recorder.note(NODE, "Normal", "NodeReady", "ready again")
    await asyncio.sleep(1)
    assert sorted(event.count or 0 for event in posting.events()) == [1, 3]


async def test_a_repetition_after_an_hour_is_a_new_event(posting: Posting) -> None:
    posting.start()
    posting.recorder.note(NODE, "Normal", "NodeReady", "ready")
    await asyncio.sleep(3601)
    posting.recorder.note(NODE, "Normal", "NodeReady", "ready")
    await asyncio.sleep(1)
    assert len(posting.events()) == 2


async def test_a_count_whose_event_is_gone_starts_anew(posting: Posting) -> None:
    posting.start()
    posting.recorder.note(NODE, "Normal", "NodeReady", "ready")
    await asyncio.sleep(1)
    (event,) = posting.events()
    posting.api.store.remove(Event, event.metadata.name, "default")
    posting.recorder.note(NODE, "Normal", "NodeReady", "ready")
    await asyncio.sleep(1)
    assert [event.count for event in posting.events()] == [1]


async def test_events_that_cannot_be_posted_are_dropped_and_counted(posting: Posting) -> None:
    posting.start()
    posting.api.fail(TransportError("unreachable"))
    posting.recorder.note(NODE, "Normal", "NodeReady", "ready")
    posting.recorder.note(NODE, "Normal", "NodeNotReady", "not ready")
    await asyncio.sleep(1)
    assert [event.reason for event in posting.events()] == ["NodeNotReady"]
    assert posting.recorder.dropped == 1


@pytest.mark.parametrize(
    "error", [TransportError("unreachable"), ApiError(503, "ServiceUnavailable", "unreachable")]
)
async def test_each_outage_and_its_end_are_logged_once(
    posting: Posting, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orch.client.events")
    posting.start()
    for _ in range(2):
        posting.api.fail(error, times=3)
        for number in range(5):
            posting.recorder.note(NODE, "Normal", "R", str(number))
        await asyncio.sleep(1)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "events cannot be posted to the API server and are dropped: unreachable"),
        ("INFO", "events are posted to the API server again; 3 were dropped (after 0.0 s)"),
    ] * 2


async def test_an_event_that_is_refused_for_itself_is_counted_and_no_outage(
    posting: Posting, caplog: pytest.LogCaptureFixture
) -> None:
    posting.start()
    posting.api.fail(ApiError(403, "Forbidden", "the namespace is being terminated"))
    posting.recorder.note(POD, "Normal", "R", "m")
    await asyncio.sleep(1)
    assert posting.recorder.dropped == 1 and caplog.messages == []


async def test_the_oldest_go_first_when_too_many_wait(caplog: pytest.LogCaptureFixture) -> None:
    recorder = EventRecorder(FakeApi(), "x")
    for number in range(1005):
        node = Node(metadata=ObjectMeta(name="n1", uid=f"u{number // 100}"))
        recorder.note(node, "Normal", "R", str(number))
    assert recorder.dropped == 5
    assert caplog.messages == [
        "events cannot be posted to the API server and are dropped: 1000 are queued already"
    ]


async def test_without_an_api_server_nothing_is_kept() -> None:
    recorder = EventRecorder(None, "x")
    recorder.note(NODE, "Normal", "R", "m")
    assert recorder.dropped == 0


def test_dropped_events_are_on_the_metrics_page() -> None:
    events, registry = EventRecorder(None, "x"), Registry()
    registry.register(EventMetrics(events))
    events.dropped = 3
    text = registry.render("")[0].decode()
    assert "# HELP orch_events_dropped_total [ALPHA] " in text
    assert "orch_events_dropped_total 3.0" in text
