"""The events that `kubectl describe pod` shows, on a runtime in memory."""

from __future__ import annotations

import asyncio

import pytest

from nodeagent.pods.events import PodEvents
from nodeagent.pods.sources.mirror import mirror_of
from orch.wire.records.meta import ApiObject
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime


async def test_a_pod_that_starts_tells_how(world: PodWorld) -> None:
    world.runtime.images_to_pull.add("localhost/later:1")
    await world.start(pod("here", container_data("later", image="localhost/later:1")))
    await world.until(lambda: len(world.running()) == 2)
    await asyncio.sleep(1)
    assert world.events == [
        ("web", "Pulled", 'Container image "localhost/busybox:1" already present on machine'),
        ("web", "Created", "Created container: here"),
        ("web", "Started", "Started container here"),
        ("web", "Pulling", 'Pulling image "localhost/later:1"'),
        (
            "web",
            "Pulled",
            'Successfully pulled image "localhost/later:1" in 0.000s (0.000s including waiting).'
            " Image size: 4096 bytes.",
        ),
        ("web", "Created", "Created container: later"),
        ("web", "Started", "Started container later"),
    ]


async def test_a_pod_that_goes_tells_what_is_stopped(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    world.source.set()
    await world.until(lambda: not world.traces())
    assert world.events[-1] == (
        "web",
        "Killing",
        "Stopping container app: the pod is being removed",
    )


async def test_a_crash_loop_is_told_once_for_every_crash(world: PodWorld) -> None:
    await world.start(pod())
    for crash in range(3):
        await world.until(lambda: "app" in world.running(), within_s=60)
        world.runtime.exit(world.running()["app"], 1)
        await world.until(lambda crash=crash: world.reasons().count("BackOff") == crash)  # type: ignore[misc]
        await asyncio.sleep(5)
        assert world.reasons().count("BackOff") == crash
    _, _, message = next(event for event in world.events if event[1] == "BackOff")
    assert message.startswith("Back-off restarting failed container app in pod web_default(")


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("create_container", ("Failed", "Error: no")),
        ("start_container", ("Failed", "Error: no")),
        ("run_sandbox", ("FailedCreatePodSandBox", "Failed to create pod sandbox: no")),
    ],
)
async def test_a_refused_call_is_told(
    world: PodWorld, operation: str, expected: tuple[str, str]
) -> None:
    world.runtime.fail(operation, "no", times=1)
    await world.start(pod())
    await world.until(lambda: "app" in world.running(), within_s=60)
    assert ("web", *expected) in world.events


async def test_a_failed_pull_is_told_with_its_cause_and_its_reason(world: PodWorld) -> None:
    await world.start(pod(container_data("app", image="localhost/later:1")))
    await world.until(lambda: world.waiting() == "ErrImagePull")
    assert [message for _, reason, message in world.events if reason == "Failed"] == [
        'Failed to pull image "localhost/later:1": failed to pull image "localhost/later:1"',
        "Error: ErrImagePull",
    ]


class Recorded:
    def __init__(self) -> None:
        self.subjects: list[ApiObject] = []

    def note(self, obj: ApiObject, type: str, reason: str, message: str) -> None:  # noqa: A002
        self.subjects.append(obj)


def test_events_of_a_static_pod_are_about_its_mirror() -> None:
    static = pod(metadata={"annotations": {"orch.io/config.hash": "abc"}})
    mirror, namesake = mirror_of(static, None), pod(metadata={"uid": "other"})
    for stored, expected in ((mirror, mirror), (namesake, static), (None, static)):
        recorded = Recorded()
        found: Pod | None = stored
        PodEvents(recorded, lambda *_, found=found: found).normal(static, "Started", "x")  # type: ignore[misc]
        assert recorded.subjects == [expected]
