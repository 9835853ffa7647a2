"""Pods that use too much disk fail with the reason Evicted, by the reference's rules."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from nodeagent.pods import local_storage
from nodeagent.pods.local_storage import LocalStorageEviction
from nodeagent.stats.samples import (
    ContainerSample,
    ContainerTarget,
    FsSample,
    PodSample,
    PodTarget,
    Sample,
    VolumeSample,
    VolumeTarget,
)
from orch.wire.records.pods import Pod
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import PodWorld

MIB = 2**20


def used(
    volume: int = 0, rootfs: int = 0, logs: int = 0, kind: str = "emptyDir", in_memory: bool = False
) -> PodSample:
    """Bytes of the volume `v`, and of the container `app`."""
    target = PodTarget("default", "web", UID, "", None, None, 0)
    container = ContainerSample(
        ContainerTarget("app", "c", 0, ""),
        rootfs=FsSample(0, used_bytes=rootfs),
        logs=FsSample(0, used_bytes=logs),
    )
    fs = FsSample(0, used_bytes=volume)
    volumes = (VolumeSample(VolumeTarget("v", "/v", kind, in_memory), fs),)
    return PodSample(target, containers=(container,), volumes=volumes)


def limited(size_limit: str | None = None, disk: str | None = None, **spec: Any) -> Pod:
    resources = {"limits": {"ephemeral-storage": disk}} if disk else {}
    volume = {"name": "v", "emptyDir": {"sizeLimit": size_limit}}
    return pod(container_data("app", resources=resources), volumes=[volume], **spec)


CASES: list[tuple[str, Pod, PodSample, str]] = [
    ("no bounds", limited(), used(volume=9 * MIB, rootfs=9 * MIB), ""),
    ("within", limited("1Mi"), used(volume=MIB), ""),
    (
        "volume",
        limited("1Mi"),
        used(volume=MIB + 1),
        'Usage of EmptyDir volume "v" exceeds the limit "1Mi". ',
    ),
    (
        "container's layer and logs",
        limited(disk="2Mi"),
        used(rootfs=MIB, logs=MIB + 1),
        "Pod ephemeral local storage usage exceeds the total limit of containers 2097152. ",
    ),
    (
        "a host's directory is not the pod's",
        limited(disk="2Mi"),
        used(9 * MIB, kind="hostPath"),
        "",
    ),
    ("memory is no disk", limited(disk="2Mi"), used(9 * MIB, in_memory=True), ""),
    (
        "volumes count",
        limited(disk="2Mi"),
        used(volume=3 * MIB),
        "Pod ephemeral local storage usage exceeds the total limit of containers 2097152. ",
    ),
    (
        "one container of two",
        pod(
            container_data("app", resources={"limits": {"ephemeral-storage": "1Mi"}}),
            container_data("free"),
        ),
        used(rootfs=2 * MIB),
        'Container app exceeded its local ephemeral storage limit "1Mi". ',
    ),
]


@pytest.mark.parametrize(("wanted", "sample", "message"), [c[1:] for c in CASES])
def test_a_pod_keeps_to_its_bounds_or_is_told_which_one_it_broke(
    wanted: Pod, sample: PodSample, message: str
) -> None:
    assert local_storage.excess(wanted, sample) == message


SHAPES: list[tuple[Pod, str]] = [
    (
        limited("1Gi"),
        'EmptyDir volume "v" has the limit "1Gi" and cannot be measured: too deep. ',
    ),
    (
        limited(disk="2Mi"),
        "Pod ephemeral local storage has the limit 2097152 and cannot be measured: too deep. ",
    ),
    (limited(), ""),
]


@pytest.mark.parametrize(("wanted", "message"), SHAPES)
def test_a_volume_that_cannot_be_measured_exceeds_every_limit(wanted: Pod, message: str) -> None:
    sample = used(volume=1)
    volume = VolumeTarget("v", "/v", "emptyDir")
    sample = sample._replace(target=replace(sample.target, volumes=(volume,)))
    assert local_storage.excess(wanted, sample, {"/v": "too deep"}) == message


@pytest.mark.looptime
async def test_a_pod_that_uses_too_much_fails_and_stays_so(world: PodWorld) -> None:
    samples = [Sample(0, pods=(used(volume=2 * MIB),))]
    storage = LocalStorageEviction(
        world.registry,
        world.counts,
        lambda: samples[-1],
        world.workers.evict,
    )
    await world.start(limited("1Mi", terminationGracePeriodSeconds=600))
    await world.until(lambda: "app" in world.running())
    await storage.step()
    await world.until(lambda: world.status().status.phase == "Failed")
    await world.until(lambda: not world.running())
    status = world.status().status
    assert status.reason == "Evicted"
    assert status.message == 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
    assert "Evicted" in world.reasons()
    await storage.step()
    assert world.counts.evictions == {"ephemeral-storage": 1}, "what is over is not evicted again"
    world.source.set(limited("1Mi", metadata={"labels": {"later": "yes"}}))
    await asyncio.sleep(60)
    assert not world.running()
    assert world.status().status.reason == "Evicted"
    world.source.set()
    await world.until(lambda: not world.traces(), within_s=30)


@pytest.mark.looptime
async def test_a_limit_that_is_no_amount_ends_nothing(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that does not check amounts may have stored it."""
    sample = Sample(0, pods=(used(volume=2 * MIB),))
    storage = LocalStorageEviction(
        world.registry, world.counts, lambda: sample, world.workers.evict
    )
    world.registry.set_desired([limited("many")])
    for _ in range(3):
        await storage.step()
    assert world.counts.evictions == {}
    [line] = [text for text in caplog.messages if "many" in text]
    assert "web" in line


@pytest.mark.looptime
async def test_a_bound_that_a_pod_gets_later_counts_from_the_next_look_on(world: PodWorld) -> None:
    told: list[str] = []
    sample = Sample(0, pods=(used(volume=2 * MIB),))

    def evict(uid: str, _message: str) -> bool:
        told.append(uid)
        return True

    storage = LocalStorageEviction(world.registry, world.counts, lambda: sample, evict)
    await world.start(limited())
    await world.until(lambda: "app" in world.running())
    await storage.step()
    await storage.step()
    assert not told
    world.source.set(limited("1Mi"))
    await world.until(lambda: local_storage.has_limit(world.status()))
    await storage.step()
    assert told == [UID]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_only_a_pod_with_bounds_can_break_one(case: tuple[str, Pod, PodSample, str]) -> None:
    _, wanted, _, message = case
    assert local_storage.has_limit(wanted) or not message


def test_a_pod_without_bounds_is_known_as_such() -> None:
    assert not local_storage.has_limit(limited())
    assert local_storage.has_limit(limited("1Mi")) and local_storage.has_limit(limited(disk="2Mi"))


@pytest.mark.looptime
async def test_a_pod_nobody_works_on_cannot_be_evicted(world: PodWorld) -> None:
    await world.start(pod())
    assert not world.workers.evict("unknown", "too much")
    await LocalStorageEviction(
        world.registry, world.counts, lambda: None, world.workers.evict
    ).step()
