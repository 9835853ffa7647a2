"""Rotates container logs that exceed their maximum size.

The newest rotated file stays as it is, older ones are compressed, and those beyond the maximum
number are deleted (reference agent, `container_log_manager`). The runtime is called to reopen the
log; when that fails, or the agent exits first, the log gets its name back.

A flood passes the maximum by little: when a disk's use has changed within a second, sizes are
looked at before the configured interval has passed, and again while a log floods; of a file that
became much too large only the end is kept. What was set aside within the interval is not
compressed: a flood must not cost the agent's processor time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import logging
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import BinaryIO

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
_CHANGED_BYTES = 4 << 20  # of a disk's use, up or down: what is removed hides what is written
_FLOOD_S = 0.2  # between the looks of one step
_FLOOD_LOOKS = 4
_STAMP = "%Y%m%d-%H%M%S.%f"
_GZIP = ".gz"
_UNFINISHED = ".tmp"
_COMPRESSED_BYTES = 1 << 30  # of a log; a pod that mounts the logs could make a sparse one


@dataclass(frozen=True, slots=True)
class LogBounds:
    """`max_files` counts the log being written; what is older than `interval_s` is compressed."""

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
        self._used_bytes: list[int] = []  # of the places' disks after the last look
        self._looked_s = float("-inf")
        self._registry = registry
        self._bounds = bounds
        self._now = now
        self._outages = OnceLog(log)  # by container

    async def run(self) -> None:
        interval_s = min(self._bounds.interval_s, _GLANCE_S)
        await Periodic("pods.logs", self.glance, interval_s=interval_s).run()

    async def glance(self) -> None:
        """A step if one is due, or if a disk's use has changed much: to look at all sizes every
        second would cost a quarter of an idle agent.
        """
        now_s = asyncio.get_running_loop().time()
        used = await asyncio.to_thread(_used_bytes, self._places)
        changed = len(used) != len(self._used_bytes) or any(
            abs(new - old) > _CHANGED_BYTES for new, old in zip(used, self._used_bytes, strict=True)
        )
        if changed or now_s - self._looked_s >= self._bounds.interval_s:
            self._looked_s = now_s
            await self.step()
            self._used_bytes = await asyncio.to_thread(_used_bytes, self._places)

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
            done = await asyncio.gather(*map(self._try_to_rotate, large))
            if not (rotated := list(itertools.compress(large, done))):
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
        await asyncio.to_thread(_rename, path, name, rotated)
        try:
            await self._runtime.reopen_log(detail.container.id)
        except (RuntimeCallError, asyncio.CancelledError):
            await asyncio.to_thread(_restore, path, rotated)
            raise
        await asyncio.to_thread(_tidy, path, self._bounds, f"{name}.{settled}")


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


def remove(path: str) -> None:
    """Remove a log, and the files beside it whose names begin with its own.

    What cannot be removed goes with the pod.
    """
    with contextlib.suppress(OSError), reader.directory_of(path) as directory:
        for name in os.listdir(directory):
            if name.startswith(os.path.basename(path)):
                _remove(directory, name)


def _remove(directory: int, name: str) -> None:
    with contextlib.suppress(IsADirectoryError):
        descriptors.unlink(name, directory)


def _rename(path: str, name: str, new_name: str) -> None:
    with reader.directory_of(path) as directory:
        os.rename(name, new_name, src_dir_fd=directory, dst_dir_fd=directory)


def _restore(path: str, rotated: str) -> None:
    """Restore the log's name, unless the runtime began a new log before the call failed."""
    with reader.directory_of(path) as directory:
        name = os.path.basename(path)
        if name not in os.listdir(directory):
            os.rename(rotated, name, src_dir_fd=directory, dst_dir_fd=directory)


def _tidy(path: str, bounds: LogBounds, settled: str) -> None:
    """Delete unfinished files and all but the newest rotated ones, and cut the newest.

    Those with names before `settled` are compressed, unless that would take minutes.
    """
    prefix, keep = f"{os.path.basename(path)}.", bounds.max_files - 1
    with reader.directory_of(path) as directory:
        found = sorted(name for name in os.listdir(directory) if name.startswith(prefix))
        rotated = [name for name in found if not name.endswith(_UNFINISHED)]
        newest = rotated[-keep:] if keep > 0 else []
        kept = {name: size for name in newest if (size := _file_size(directory, name)) is not None}
        for name in found:
            if name not in kept:
                _remove(directory, name)
        if newest and newest[-1] in kept:
            _cut(directory, newest[-1], kept[newest[-1]], bounds.max_bytes)
        for name, size in kept.items():
            if size <= _COMPRESSED_BYTES and not name.endswith(_GZIP) and name < settled:
                _compress(directory, name)


def _file_size(directory: int, name: str) -> int | None:
    """None for what agent and runtime do not make, such as a link that a pod put there."""
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _cut(directory: int, name: str, size: int, max_bytes: int) -> None:
    """Keep the end of a file that is larger than the maximum by more than a quarter."""
    if size <= max_bytes * 5 // 4:
        return
    try:
        with _rewritten(directory, name, name) as (source, target):
            source.seek(size - max_bytes)
            source.readline(reader.CHUNK_BYTES)  # maybe the middle of a line
            at = source.tell()
            while at < size and (
                sent := os.sendfile(target.fileno(), source.fileno(), at, size - at)
            ):
                at += sent
    except OSError:
        _remove(directory, name)  # as large as it is it would fill the disk
        raise


def _compress(directory: int, name: str) -> None:
    with (
        _rewritten(directory, name, name + _GZIP) as (source, made),
        gzip.open(made, "wb") as target,
    ):
        shutil.copyfileobj(source, target)
    os.unlink(name, dir_fd=directory)


@contextmanager
def _rewritten(directory: int, name: str, new_name: str) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """A file and its replacement, which gets its name only once it is complete. OSError."""
    unfinished = name + _UNFINISHED
    try:
        with os.fdopen(descriptors.open_file(name, directory), "rb") as source:
            mode = os.fstat(source.fileno()).st_mode & 0o777
            made = descriptors.create_file(unfinished, mode, directory)
            with os.fdopen(made, "wb") as target:
                yield source, target
        os.rename(unfinished, new_name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        _remove(directory, unfinished)  # it would occupy the rest of a full disk
        raise
