"""Removes unused images when their disk is nearly full, or when they are old.

Thresholds and order are the reference agent's (pkg/kubelet/images/image_gc_manager): above the high
threshold the least recently used images are removed, until the low threshold is reached. An image
is used while a container was created from it or a desired pod names it. Pinned images stay, and
each image stays for a minimum time after it was first seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodeagent.pods.counts import PodCounts
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec import spec
from nodeagent.runtime.base import ContainerRuntime, Image, RuntimeCallError, RuntimeUnavailable
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.component.process.threads import run_in_thread
from orch.wire.podrules.podspec import all_containers

log = logging.getLogger(__name__)

INTERVAL_S = 300.0
_STATVFS_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class ImageBounds:
    """Percentages of the disk; `max_age_s` 0: images do not grow too old."""

    high_percent: int = 85
    low_percent: int = 80
    min_age_s: float = 120.0
    max_age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Disk:
    capacity_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Known:
    """Since when an image is known, and when it was used last (loop time)."""

    since_s: float
    used_s: float


@dataclass(frozen=True, slots=True)
class Removable:
    image: Image
    reason: str  # space | age


def removable(
    images: Sequence[Image],
    known: Mapping[str, Known],
    used: frozenset[str],
    disk: Disk | None,
    bounds: ImageBounds,
    now_s: float,
) -> list[Removable]:
    """The images to remove, in order; `used` are ids, tags and digests. Pure.

    Without `disk` only the age counts.
    """
    idle = [image for image in images if not image.pinned and not used & _names(image)]
    idle = [i for i in idle if now_s - known[i.id].since_s >= bounds.min_age_s]
    idle.sort(key=lambda image: (known[image.id].used_s, known[image.id].since_s))
    chosen = [
        Removable(image, "age")
        for image in idle
        if bounds.max_age_s and now_s - known[image.id].used_s > bounds.max_age_s
    ]
    freed = sum(entry.image.size_bytes for entry in chosen)
    old = {entry.image.id for entry in chosen}
    wanted = excess_bytes(disk, bounds)
    for image in idle:
        if freed >= wanted:
            break
        if image.id not in old:
            chosen.append(Removable(image, "space"))
            freed += image.size_bytes
    return chosen


def excess_bytes(disk: Disk | None, bounds: ImageBounds) -> int:
    """Bytes to free to reach the low threshold; 0 below the high threshold."""
    if disk is None or disk.capacity_bytes <= 0:
        return 0
    used_bytes = disk.capacity_bytes - disk.available_bytes
    if used_bytes * 100 < bounds.high_percent * disk.capacity_bytes:
        return 0
    return used_bytes - disk.capacity_bytes * bounds.low_percent // 100


class ImageCollection:
    """Runs every five minutes, first five minutes after the start, from which ages count."""

    def __init__(
        self,
        runtime: ContainerRuntime,
        registry: PodRegistry,
        counts: PodCounts,
        bounds: ImageBounds,
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._counts = counts
        self._bounds = bounds
        self._known: dict[str, Known] = {}
        self._outage = OnceLog(log)

    async def run(self) -> None:
        images = Periodic(
            "pods.images", self.step, interval_s=INTERVAL_S, initial_delay_s=INTERVAL_S
        )
        with contextlib.suppress(RuntimeCallError):  # the first step looks again, and tells
            self._update_known(await self._runtime.images(), self._used(), _time())
        await images.run()

    async def step(self) -> None:
        """Collect once; failures of the runtime or the disk are logged once per outage."""
        try:
            images = await self._runtime.images()
            disk = await self._disk()
            now_s, used = _time(), self._used()
            self._update_known(images, used, now_s)
            found = removable(images, self._known, used, disk, self._bounds, now_s)
            stuck = await self._remove_all(found)
        except (RuntimeCallError, OSError, TimeoutError) as error:
            why = str(error) or "their disk does not answer"
            self._outage.failed("cannot collect unused images: %s", why)
            return
        wanted = excess_bytes(disk, self._bounds)
        short = wanted - sum(entry.image.size_bytes for entry in found)
        if stuck:
            self._outage.failed("%s", stuck, cause="stuck")
        elif short > 0:
            text = "the disk of the images is above %d %%, and %d bytes more than all unused images"
            high_percent = self._bounds.high_percent
            self._outage.failed(f"{text} hold must be freed", high_percent, short, cause="full")
        else:
            self._outage.recovered()

    def _update_known(self, images: Sequence[Image], used: frozenset[str], now_s: float) -> None:
        before = self._known
        self._known = {}
        for image in images:
            known = before.get(image.id) or Known(now_s, now_s)
            in_use = bool(used & _names(image))
            self._known[image.id] = Known(known.since_s, now_s if in_use else known.used_s)

    def _used(self) -> frozenset[str]:
        held = [c.container for view in self._registry.views().values() for c in view.containers]
        desired = self._registry.all_desired()
        wanted = [c for pod in desired for c in all_containers(pod)]
        volumes = [image for pod in desired for image in spec.image_volumes(pod).values()]
        return frozenset(
            (
                *(name for container in held for name in (container.image, container.image_ref)),
                *(container.image for container in wanted),
                *(image.reference for image in volumes),
            )
        )

    async def _remove_all(self, found: Sequence[Removable]) -> str:
        """Remove these images; why an image cannot be removed, else ""."""
        problem = ""
        for entry in found:
            try:
                await self._remove(entry)
            except RuntimeUnavailable:
                raise
            except RuntimeCallError as error:
                problem = f"image {_shown(entry.image)} cannot be removed: {error}"
        return problem

    async def _remove(self, entry: Removable) -> None:
        image = entry.image
        await self._runtime.remove_image(image.id)
        self._counts.images_removed[entry.reason] += 1
        why = "it is old" if entry.reason == "age" else "its disk is nearly full"
        log.info("removed image %s (%d bytes): %s", _shown(image), image.size_bytes, why)

    async def _disk(self) -> Disk | None:
        filesystems = await self._runtime.image_filesystems()
        if not filesystems:
            return None
        path = filesystems[0].mountpoint
        async with asyncio.timeout(_STATVFS_DEADLINE_S):
            found = await run_in_thread(lambda: os.statvfs(path), name="statvfs of images")
        return Disk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


def _time() -> float:
    return asyncio.get_running_loop().time()


def _names(image: Image) -> set[str]:
    return {image.id, *image.tags, *image.digests, *(f"docker.io/library/{t}" for t in image.tags)}


def _shown(image: Image) -> str:
    return next(iter((*image.tags, *image.digests)), image.id)
