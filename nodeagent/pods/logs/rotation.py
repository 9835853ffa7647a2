"""Rotates container logs that exceed their maximum size.

The newest rotated file stays as it is, older ones are compressed, and those beyond the maximum
number are deleted (reference agent, `container_log_manager`). The runtime is called to reopen the
log; when that fails, or the agent exits first, the log gets its name back.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import os
import shutil
import stat
from dataclasses import dataclass

from nodeagent import descriptors
from nodeagent.pods.logs import reader
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

_GZIP = ".gz"
_UNFINISHED = ".tmp"


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
        now: Now = clock.utc_now,
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._bounds = bounds
        self._now = now
        self._outages = OnceLog(log)  # by container

    async def run(self) -> None:
        await Periodic("pods.logs", self.step, interval_s=self._bounds.interval_s).run()

    async def step(self) -> None:
        """Rotate logs that are too large; a failure is logged once and retried."""
        running = [
            detail
            for view in self._registry.views().values()
            for detail in view.containers
            if detail.container.state is ContainerState.RUNNING and detail.log_path
        ]
        for detail in await asyncio.to_thread(self._too_large, running):
            container_id = detail.container.id
            try:
                await self._rotate(detail)
                self._outages.recovered(subject=container_id)
            except (OSError, RuntimeCallError) as error:
                text = "cannot rotate the log %s: %s"
                self._outages.failed(text, detail.log_path, error, subject=container_id)
        self._outages.retain({detail.container.id for detail in running})

    def _too_large(self, details: list[ContainerDetail]) -> list[ContainerDetail]:
        return [detail for detail in details if _size(detail.log_path) > self._bounds.max_bytes]

    async def _rotate(self, detail: ContainerDetail) -> None:
        path, name = detail.log_path, os.path.basename(detail.log_path)
        rotated = f"{name}.{self._now().strftime('%Y%m%d-%H%M%S.%f')}"
        await asyncio.to_thread(_set_aside, path, rotated, max(self._bounds.max_files - 2, 0))
        try:
            await self._runtime.reopen_log(detail.container.id)
        except (RuntimeCallError, asyncio.CancelledError):
            await asyncio.to_thread(_restore, path, rotated)
            raise
        if self._bounds.max_files < 2:
            await asyncio.to_thread(remove, path, rotated)


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
                _unlink(directory, name)


def _unlink(directory: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(name, dir_fd=directory)


def _set_aside(path: str, rotated: str, keep: int) -> None:
    with reader.directory_of(path) as directory:
        _make_room(directory, os.path.basename(path), keep)
        os.rename(os.path.basename(path), rotated, src_dir_fd=directory, dst_dir_fd=directory)


def _restore(path: str, rotated: str) -> None:
    """Restore the log's name, unless the runtime began a new log before the call failed."""
    with reader.directory_of(path) as directory:
        name = os.path.basename(path)
        if name not in os.listdir(directory):
            os.rename(rotated, name, src_dir_fd=directory, dst_dir_fd=directory)


def _make_room(directory: int, log_name: str, keep: int) -> None:
    """Delete unfinished files and all but the newest `keep` rotated ones; compress those."""
    found = sorted(n for n in os.listdir(directory) if n.startswith(f"{log_name}."))
    rotated = [name for name in found if not name.endswith(_UNFINISHED)]
    kept = rotated[len(rotated) - keep :] if keep else []
    for name in found:
        if name not in kept or not _is_file(directory, name):
            _unlink(directory, name)
        elif not name.endswith(_GZIP):
            _compress(directory, name)


def _is_file(directory: int, name: str) -> bool:
    """Whether it is one that the agent or the runtime made, not a link that a pod put there."""
    return stat.S_ISREG(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)


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
        _unlink(directory, unfinished)  # it would occupy the rest of a full disk
        raise
    os.unlink(name, dir_fd=directory)
