"""Rotates container logs that exceed their maximum size.

The newest rotated file stays as it is, older ones are compressed, and those beyond the maximum
number are deleted (reference agent, `container_log_manager`). The runtime is called to reopen the
log; when that fails, or the agent exits first, the log gets its name back.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

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
        path = Path(detail.log_path)
        await asyncio.to_thread(_make_room, path, keep=max(self._bounds.max_files - 2, 0))
        rotated = path.with_name(f"{path.name}.{self._now().strftime('%Y%m%d-%H%M%S.%f')}")
        await asyncio.to_thread(path.rename, rotated)
        try:
            await self._runtime.reopen_log(detail.container.id)
        except (RuntimeCallError, asyncio.CancelledError):
            await asyncio.to_thread(_restore, rotated, path)
            raise
        if self._bounds.max_files < 2:
            await asyncio.to_thread(rotated.unlink)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0  # removed meanwhile


def _restore(rotated: Path, path: Path) -> None:
    """Restore the log's name, unless the runtime began a new log before the call failed."""
    if not path.exists():
        rotated.rename(path)


def _make_room(path: Path, *, keep: int) -> None:
    """Delete unfinished files and all but the newest `keep` rotated ones; compress those."""
    rotated = sorted(path.parent.glob(f"{path.name}.*"))
    for unfinished in [path for path in rotated if path.suffix == _UNFINISHED]:
        unfinished.unlink()
        rotated.remove(unfinished)
    for old in rotated[: len(rotated) - keep] if keep else rotated:
        old.unlink()
    for kept in rotated[len(rotated) - keep :] if keep else ():
        if kept.suffix != _GZIP and kept.exists():
            _compress(kept)


def _compress(path: Path) -> None:
    """The compressed file gets its name only once it is complete."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    try:
        with path.open("rb") as source, gzip.open(unfinished, "wb") as target:
            shutil.copyfileobj(source, target)
        unfinished.chmod(path.stat().st_mode & 0o777)
        unfinished.rename(path.with_name(path.name + _GZIP))
    except OSError:
        unfinished.unlink(missing_ok=True)  # it would occupy the rest of a full disk
        raise
    path.unlink()
