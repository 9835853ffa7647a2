"""Rotates container logs that exceed their maximum size.

The newest rotated file stays as it is, older ones are compressed, and those beyond the maximum
number are deleted (reference agent, `container_log_manager`). The runtime is called to reopen the
log; when that fails, or the agent exits first, the log gets its name back.

A flood passes the maximum by little: when a disk's use has grown within a second, sizes are looked
at before the configured interval has passed, and again while a log floods. What was set aside
within the interval is not compressed: a flood must not cost the agent's processor time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from nodeagent import descriptors
from nodeagent.pods.logs import reader
from nodeagent.pods.logs.termination_messages import TerminationMessages
from nodeagent.pods.registry import PodRegistry
from nodeagent.runtime.base import (
    ContainerDetail,
    ContainerRuntime,
    ContainerState,
    RuntimeCallError,
)
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

_GLANCE_S = 1.0
_GROWN_BYTES = 4 << 20
_FLOOD_S = 0.2  # between the looks of one step
_FLOOD_LOOKS = 4
_STAMP = "%Y%m%d-%H%M%S.%f"
_GZIP = ".gz"
_UNFINISHED = ".tmp"
_COMPRESSED_BYTES = 1 << 30  # of a log; a pod that mounts the logs could make a sparse one


@dataclass(frozen=True, slots=True)
class LogBounds:
    """`max_files` counts the log being written."""

    max_bytes: int = 10 * 1024 * 1024
    max_files: int = 5
    interval_s: float = 10.0


class LogRotation:
    """Checks the logs of all running containers."""

    def __init__(
        self,
        runtime: ContainerRuntime,
        registry: PodRegistry,
        bounds: LogBounds = LogBounds(),
        *,
        messages: TerminationMessages | None = None,
        places: Sequence[str] = (),
        now: Now = clock.utc_now,
    ) -> None:
        """`messages` are cut with each look; `places` lie on the disks that containers fill."""
        self._runtime = runtime
        self._messages = messages
        self._places = places
        self._used_bytes: list[int] = []  # of the places' disks at the last look
        self._looked_s = float("-inf")
        self._registry = registry
        self._bounds = bounds
        self._now = now
        self._outages = OnceLog(log)  # by container

    async def run(self) -> None:
        interval_s = min(self._bounds.interval_s, _GLANCE_S)
        await Periodic("pods.logs", self.glance, interval_s=interval_s).run()

    async def glance(self) -> None:
        """A step if one is due, or if a disk's use has grown much."""
        now_s = asyncio.get_running_loop().time()
        used = await asyncio.to_thread(_used_bytes, self._places)
        grown = len(used) != len(self._used_bytes) or any(
            new - old > _GROWN_BYTES for new, old in zip(used, self._used_bytes, strict=True)
        )
        if grown or now_s - self._looked_s >= self._bounds.interval_s:
            self._looked_s, self._used_bytes = now_s, used
            await self.step()

    async def step(self) -> None:
        """Cut messages, rotate logs that are too large, and again while they flood.

        A failure is logged once and retried.
        """
        if self._messages is not None:
            await self._messages.cut(self._registry.views().values())
        running = [
            detail
            for view in self._registry.views().values()
            for detail in view.containers
            if detail.container.state is ContainerState.RUNNING and detail.log_path
        ]
        large = await asyncio.to_thread(self._too_large, running)
        for _ in range(_FLOOD_LOOKS):
            rotated = [detail for detail in large if await self._try_to_rotate(detail)]
            if not rotated:
                break
            await asyncio.sleep(_FLOOD_S)
            large = await asyncio.to_thread(self._too_large, rotated)
        self._outages.retain({detail.container.id for detail in running})

    async def _try_to_rotate(self, detail: ContainerDetail) -> bool:
        container_id = detail.container.id
        try:
            await self._rotate(detail)
        except (OSError, RuntimeCallError) as error:
            text = "cannot rotate the log %s: %s"
            self._outages.failed(text, detail.log_path, error, subject=container_id)
            return False
        self._outages.recovered(subject=container_id)
        return True

    def _too_large(self, details: list[ContainerDetail]) -> list[ContainerDetail]:
        return [detail for detail in details if _size(detail.log_path) > self._bounds.max_bytes]

    async def _rotate(self, detail: ContainerDetail) -> None:
        path, name = detail.log_path, os.path.basename(detail.log_path)
        now = self._now()
        rotated = f"{name}.{now.strftime(_STAMP)}"
        settled = (now - timedelta(seconds=self._bounds.interval_s)).strftime(_STAMP)
        keep = max(self._bounds.max_files - 2, 0)
        await asyncio.to_thread(_set_aside, path, rotated, keep, settled)
        try:
            await self._runtime.reopen_log(detail.container.id)
        except (RuntimeCallError, asyncio.CancelledError):
            await asyncio.to_thread(_restore, path, rotated)
            raise
        if self._bounds.max_files < 2:
            await asyncio.to_thread(remove, path, rotated)


def _used_bytes(places: Iterable[str]) -> list[int]:
    used = []
    for place in places:
        with contextlib.suppress(OSError):
            disk = os.statvfs(place)
            used.append((disk.f_blocks - disk.f_bfree) * disk.f_frsize)
    return used


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0  # removed meanwhile


def remove(path: str, prefix: str = "") -> None:
    """Remove the files beside a log whose names begin with `prefix`, by default its own name.

    What cannot be removed goes with the pod.
    """
    with contextlib.suppress(OSError), reader.directory_of(path) as directory:
        for name in os.listdir(directory):
            if name.startswith(prefix or os.path.basename(path)):
                _remove(directory, name)


def _remove(directory: int, name: str) -> None:
    with contextlib.suppress(IsADirectoryError):
        descriptors.unlink(name, directory)


def _set_aside(path: str, rotated: str, keep: int, settled: str) -> None:
    with reader.directory_of(path) as directory:
        _make_room(directory, os.path.basename(path), keep, settled)
        os.rename(os.path.basename(path), rotated, src_dir_fd=directory, dst_dir_fd=directory)


def _restore(path: str, rotated: str) -> None:
    """Restore the log's name, unless the runtime began a new log before the call failed."""
    with reader.directory_of(path) as directory:
        name = os.path.basename(path)
        if name not in os.listdir(directory):
            os.rename(rotated, name, src_dir_fd=directory, dst_dir_fd=directory)


def _make_room(directory: int, log_name: str, keep: int, settled: str) -> None:
    """Delete unfinished files and all but the newest `keep` rotated ones.

    Those set aside before the stamp `settled` are compressed, unless that would take minutes.
    """
    found = sorted(n for n in os.listdir(directory) if n.startswith(f"{log_name}."))
    rotated = [name for name in found if not name.endswith(_UNFINISHED)]
    kept = rotated[len(rotated) - keep :] if keep else []
    settled_name = f"{log_name}.{settled}"
    for name in found:
        size = _file_size(directory, name)
        if name not in kept or size is None:
            _remove(directory, name)
        elif size <= _COMPRESSED_BYTES and not name.endswith(_GZIP) and name < settled_name:
            _compress(directory, name)


def _file_size(directory: int, name: str) -> int | None:
    """None for what agent and runtime do not make, such as a link that a pod put there."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _compress(directory: int, name: str) -> None:
    """The compressed file gets its name only once it is complete."""
    unfinished = name + _UNFINISHED
    try:
        with os.fdopen(descriptors.open_file(name, directory), "rb") as source:
            mode = os.fstat(source.fileno()).st_mode & 0o777
            made = descriptors.create_file(unfinished, mode, directory)
            with os.fdopen(made, "wb") as raw, gzip.open(raw, "wb") as target:
                shutil.copyfileobj(source, target)
        os.rename(unfinished, name + _GZIP, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        _remove(directory, unfinished)  # it would occupy the rest of a full disk
        raise
    os.unlink(name, dir_fd=directory)
