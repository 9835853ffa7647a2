"""What only the runtime knows of disks: its image file system and the containers' own layers.

Asked at a slow cadence through two list calls, never per scrape, and in between for containers that
are new; a runtime that does not answer leaves the last values, with their own stamps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodeagent.runtime.base import (
    ContainerRuntime,
    ContainerUsage,
    FilesystemUsage,
    RuntimeCallError,
)
from nodeagent.stats.samples import FsSample

log = logging.getLogger(__name__)

_MOST_SINGLY = 8  # a call of its own for each; beyond that the list of all costs less


@dataclass(frozen=True, slots=True)
class RuntimeDisks:
    """`image_fs` is None when unknown; `layers` maps a container's id to its writable layer."""

    image_fs: FilesystemUsage | None = None
    layers: Mapping[str, FsSample] = field(default_factory=dict)


class RuntimeDiskLoop:
    """Keeps `latest`; `step` belongs in a periodic loop of about a minute."""

    def __init__(self, runtime: ContainerRuntime) -> None:
        self.latest = RuntimeDisks()
        self._runtime = runtime
        self._failing = False
        self._asking = asyncio.Lock()

    async def step(self) -> None:
        """Ask the runtime once; nothing is raised when it does not answer."""
        async with self._asking:
            try:
                filesystems = await self._runtime.image_filesystems()
                usage = await self._runtime.container_usage()
            except RuntimeCallError as error:
                self._say_failure(error)
                return
            self._failing = False
            self.latest = RuntimeDisks(filesystems[0] if filesystems else None, _layers(usage))

    async def step_new(self, ids: Sequence[str]) -> None:
        """Ask for the layers of these containers, and keep what is known of the others."""
        async with self._asking:
            try:
                usage = await self._usage_of(ids)
            except RuntimeCallError as error:
                self._say_failure(error)
                return
            layers = {**self.latest.layers, **_layers(usage)}
            self.latest = replace(self.latest, layers=layers)

    async def _usage_of(self, ids: Sequence[str]) -> Sequence[ContainerUsage]:
        if len(ids) > _MOST_SINGLY:
            return await self._runtime.container_usage()
        return [one for each in ids for one in await self._runtime.container_usage(each)]

    def _say_failure(self, error: RuntimeCallError) -> None:
        if not self._failing:
            log.warning("the runtime does not tell its disk usage: %s", error)
        self._failing = True


def _layers(usage: Sequence[ContainerUsage]) -> dict[str, FsSample]:
    return {one.id: _layer(one) for one in usage if one.writable_layer_used_bytes is not None}


def _layer(usage: ContainerUsage) -> FsSample:
    return FsSample(
        usage.writable_layer_timestamp_ns or usage.cpu_timestamp_ns,
        used_bytes=usage.writable_layer_used_bytes,
        inodes_used=usage.writable_layer_inodes_used,
    )
