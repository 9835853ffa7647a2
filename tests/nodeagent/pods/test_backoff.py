"""Failed steps: how they are shown, and when they are tried again."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.pods.backoff import StepBackoffs, StepFailed
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld, changed

pytestmark = pytest.mark.looptime


def test_a_failure_is_known_until_the_step_succeeds() -> None:
    backoffs = StepBackoffs()
    backoffs.note(StepFailed("app", "CreateContainerError", "no"), 0.0)
    assert backoffs.active(1.0)["app"].remaining_s == 9.0
    assert backoffs.active(100.0)["app"].remaining_s == 0.0, "it may be tried, and is shown still"
    backoffs.clear("app")
    assert not backoffs.active(100.0)


def test_what_is_shown_of_a_failure_is_cut() -> None:
    """It may quote a path or a variable of the pod, which have no bound of their own."""
    backoffs = StepBackoffs()
    backoffs.note(StepFailed("app", "CreateContainerConfigError", "x" * 1_000_000), 0.0)
    assert backoffs.active(1.0)["app"].message == "x" * 4096


async def test_the_waiting_reason_stays_while_a_failed_step_is_tried_again(
    world: PodWorld,
) -> None:
    world.runtime.fail("create_container", "the runtime says no")
    await world.start(pod())
    await world.until(lambda: world.waiting() == "CreateContainerError")
    shown: set[str] = set()
    world.registry.on_status(lambda _uid: shown.add(world.waiting()))
    for _ in range(3):
        held = world.runtime.hold("create_container")
        await held.reached.wait()
        shown.add(world.waiting())
        held.release()
        await asyncio.sleep(1)
    assert shown == {"CreateContainerError"}


async def test_a_corrected_image_does_not_wait_out_the_back_off_of_the_wrong_one(
    world: PodWorld,
) -> None:
    wrong = pod(container_data("app", image="localhost/wrong:1", imagePullPolicy="Never"))
    await world.start(wrong)
    await asyncio.sleep(100)
    assert world.waiting() == "ErrImageNeverPull"
    right = wrong.spec.containers[0].model_copy(update={"image": "localhost/busybox:1"})
    world.source.set(changed(wrong, right))
    await world.until(lambda: "app" in world.running(), within_s=2)
