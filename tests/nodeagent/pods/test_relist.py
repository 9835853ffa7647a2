"""Listening to the runtime: when it can be relied on, and what happens when it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from nodeagent.pods.relist import HEALTHY_AFTER_S, EventStream
from nodeagent.runtime.base import (
    ContainerEvent,
    EventKind,
    RuntimeNotSupported,
    RuntimeUnavailable,
)
from orch.component.process import loops
from tests.fakes.runtime import FakeRuntime

pytestmark = pytest.mark.looptime


class Listening:
    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.told: list[ContainerEvent] = []
        self.turns: list[bool] = []
        self.stream = EventStream(
            self.runtime,
            on_event=self.told.append,
            on_change=lambda: self.turns.append(self.stream.healthy),
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = loops.spawn(self.stream.run(), name="stream")
        await asyncio.sleep(0.1)

    async def stop(self) -> None:
        if self._task:
            await loops.cancel(self._task)


@pytest_asyncio.fixture
async def listening(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Listening]:
    caplog.set_level("INFO")
    listening = Listening()
    yield listening
    await listening.stop()


async def test_a_stream_that_is_not_refused_is_relied_on_after_a_moment(
    listening: Listening,
) -> None:
    await listening.start()
    assert not listening.stream.healthy
    await asyncio.sleep(HEALTHY_AFTER_S)
    assert listening.stream.healthy
    await asyncio.sleep(600)
    assert listening.turns == [True]
    assert listening.runtime.called("events") == [""]


async def test_an_event_shows_at_once_that_the_stream_stands(listening: Listening) -> None:
    await listening.start()
    listening.runtime.tell("c1", EventKind.STOPPED)
    await asyncio.sleep(0.01)
    assert [(event.id, event.kind) for event in listening.told] == [("c1", EventKind.STOPPED)]
    assert listening.turns == [True]


async def test_a_broken_stream_is_opened_again_and_told_of_once_each(
    listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    await listening.start()
    await asyncio.sleep(5)
    listening.runtime.fail("events", RuntimeUnavailable("events", "refused"), times=4)
    listening.runtime.break_events(RuntimeUnavailable("events", "reset"))
    await asyncio.sleep(0.1)
    assert not listening.stream.healthy
    await asyncio.sleep(60)
    assert listening.turns == [True, False, True]
    assert caplog.text.count("event stream broke (reset)") == 1
    assert caplog.text.count("receiving container events") == 2
    assert "refused" not in caplog.text


async def test_a_stream_that_the_runtime_ends_is_opened_again(listening: Listening) -> None:
    await listening.start()
    await asyncio.sleep(5)
    listening.runtime.break_events()
    await asyncio.sleep(10)
    assert listening.turns == [True, False, True]
    assert listening.runtime.listeners == 1


async def test_a_runtime_without_events_is_asked_now_and_then_and_named_once(
    listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    listening.runtime.fail("events", RuntimeNotSupported("events", "unknown method"))
    await listening.start()
    await asyncio.sleep(600)
    assert listening.turns == []
    assert 10 <= len(listening.runtime.called("events")) <= 20
    assert caplog.text.count("does not support events (unknown method)") == 1
    listening.runtime.heal("events")
    await asyncio.sleep(120)
    assert listening.turns == [True]


async def test_who_stops_listening_leaves_no_stream_open(listening: Listening) -> None:
    await listening.start()
    await listening.stop()
    assert listening.runtime.listeners == 0
