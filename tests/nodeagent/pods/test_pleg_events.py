"""The PLEG and the runtime's own events, also with a runtime that sends none."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.runtime.base import (
    ContainerState,
    RuntimeNotSupported,
    RuntimeUnavailable,
)
from tests.fakes.pods import UID, pod
from tests.nodeagent.pods.test_pleg import OTHER, Observed, other
from tests.nodeagent.pods.test_pleg import observed as observed

pytestmark = pytest.mark.looptime


async def told(observed: Observed) -> None:
    """Started, and long enough ago that events are relied on."""
    await observed.start()
    await asyncio.sleep(15)
    observed.runtime.calls.clear()


async def test_a_runtime_that_tells_what_happens_is_listed_every_ten_seconds(
    observed: Observed,
) -> None:
    await observed.container(pod())
    await told(observed)
    await asyncio.sleep(100)
    assert len(observed.runtime.called("list_sandboxes")) == 10
    assert len(observed.runtime.called("container_detail")) == 0


async def test_what_the_runtime_tells_is_seen_at_once(observed: Observed) -> None:
    made = await observed.container(pod())
    await told(observed)
    observed.runtime.exit(made, 3)
    await asyncio.sleep(0.1)
    assert observed.state() is ContainerState.EXITED
    await observed.runtime.remove_container(made)
    await asyncio.sleep(0.1)
    assert observed.state() is None
    await observed.container(other())
    await asyncio.sleep(0.1)
    assert observed.state(OTHER) is ContainerState.RUNNING


async def test_what_happens_at_once_costs_one_listing(observed: Observed) -> None:
    made = [await observed.container(pod()), await observed.container(other())]
    await told(observed)
    passed_over = observed.counts.discarded_events
    for one in made:
        observed.runtime.exit(one)
    await asyncio.sleep(1)
    assert len(observed.runtime.called("list_containers")) == 1
    assert observed.counts.discarded_events == passed_over


async def test_what_a_worker_has_read_itself_costs_no_listing(observed: Observed) -> None:
    made = await observed.container(pod())
    await told(observed)
    await observed.runtime.stop_container(made, timeout_s=1)
    await observed.pleg.refresh(UID, containers=[made])
    await observed.runtime.remove_container(made)
    observed.pleg.forget(UID, made)
    await asyncio.sleep(1)
    assert observed.runtime.called("list_containers") == []
    assert observed.counts.discarded_events > 0


async def test_what_the_runtime_fails_to_tell_is_found_by_the_next_listing(
    observed: Observed,
) -> None:
    made = await observed.container(pod())
    await told(observed)
    observed.runtime.silent = True
    observed.runtime.exit(made)
    await asyncio.sleep(11)
    assert observed.state() is ContainerState.EXITED


@pytest.mark.parametrize("error", [None, RuntimeUnavailable("events", "reset")])
async def test_without_events_there_is_a_listing_every_second(
    observed: Observed, error: RuntimeUnavailable | None
) -> None:
    made = await observed.container(pod())
    await told(observed)
    observed.runtime.fail("events", RuntimeNotSupported("events", "gone"))
    observed.runtime.break_events(error)
    await asyncio.sleep(20)
    assert 20 <= len(observed.runtime.called("list_sandboxes")) <= 22
    observed.runtime.exit(made)
    await asyncio.sleep(1.1)
    assert observed.state() is ContainerState.EXITED


async def test_when_the_stream_is_back_there_is_one_more_listing_and_then_few(
    observed: Observed,
) -> None:
    await told(observed)
    observed.runtime.break_events()
    await asyncio.sleep(2.9)
    observed.runtime.calls.clear()
    await asyncio.sleep(0.2)  # it was opened after 1 s, and is relied on 2 s later
    assert len(observed.runtime.called("list_sandboxes")) == 1
    await asyncio.sleep(9)
    assert len(observed.runtime.called("list_sandboxes")) == 1


async def test_a_runtime_that_failed_to_answer_is_asked_again_every_second(
    observed: Observed,
) -> None:
    await told(observed)
    down = RuntimeUnavailable("list_sandboxes", "refused")
    observed.runtime.fail("list_sandboxes", down, times=5)
    await asyncio.sleep(15)
    assert observed.pleg.error == ""
    assert len(observed.runtime.called("list_sandboxes")) >= 6


async def test_what_changes_while_details_are_read_is_seen_right_after(
    observed: Observed,
) -> None:
    await told(observed)
    hold = observed.runtime.hold("sandbox_detail")
    made = await observed.container(pod())
    await hold.reached.wait()
    details = observed.runtime.hold("container_detail")
    hold.release()
    await details.reached.wait()
    observed.runtime.exit(made)
    await asyncio.sleep(0.2)
    before = observed.runtime.called("list_containers")
    details.release()
    await asyncio.sleep(0.01)
    assert observed.state() is ContainerState.EXITED
    assert len(observed.runtime.called("list_containers")) == len(before) + 1
