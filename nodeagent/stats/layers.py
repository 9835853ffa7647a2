"""What only the runtime knows of disks: its image file system and the containers' own layers.

Asked at a slow cadence through two list calls, never per scrape; a runtime that does not answer
leaves the last values, with their own stamps.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeagent.runtime.base import (
    ContainerRuntime,
    ContainerUsage,
    FilesystemUsage,
    RuntimeCallError,
)
from nodeagent.stats.samples import FsSample

log = logging.getLogger(__name__)


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

    async def step(self) -> None:
        """Ask the runtime once; nothing is raised when it does not answer."""
        try:
            filesystems = await self._runtime.image_filesystems()
            usage = await self._runtime.container_usage()
        except RuntimeCallError as error:
            if not self._failing:
                log.warning("the runtime does not tell its disk usage: %s", error)
            self._failing = True
            return
        self._failing = False
        layers = {one.id: _layer(one) for one in usage if one.writable_layer_used_bytes is not None}
        self.latest = RuntimeDisks(filesystems[0] if filesystems else None, layers)


def _layer(usage: ContainerUsage) -> FsSample:
    return FsSample(
        usage.writable_layer_timestamp_ns or usage.cpu_timestamp_ns,
        used_bytes=usage.writable_layer_used_bytes,
        inodes_used=usage.writable_layer_inodes_used,
    )
