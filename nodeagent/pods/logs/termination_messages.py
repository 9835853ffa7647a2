"""Termination messages: texts that containers leave when they exit.

The agent mounts a file at `terminationMessagePath` and reads it once the container has exited.
What a container writes there beyond the part that is read is cut off while it runs, or it could
fill the node's disk past every limit; so is what it adds to its file of hosts. With
FallbackToLogsOnError the end of a failed container's log replaces an empty message. Limits are the
reference agent's.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from nodeagent import descriptors
from nodeagent.pods.logs import reader
from nodeagent.pods.logs.reader import LogFile
from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.volumes import hosts
from nodeagent.runtime.base import ContainerDetail, ContainerState, Mount
from orch.component.process import loops
from orch.wire.records.pods import Container

DEFAULT_PATH = "/dev/termination-log"
MAX_BYTES = 4096
_LARGE_BYTES = 64 * 1024
_LOG_LINES, _LOG_BYTES = 80, 2048
_LOG_READS = 4
_FALLBACK = "FallbackToLogsOnError"


class TerminationMessages:
    """`root_dir` is the agent's; messages are cached until their container is removed."""

    def __init__(self, root_dir: str) -> None:
        self._root = Path(root_dir)
        self._known: dict[str, str] = {}  # container id → message

    async def cut(self, pods: Iterable[ObservedPod]) -> None:
        """Cut off what running containers have written beyond what is read."""
        running = [
            (seen.uid, detail.container)
            for seen in pods
            for detail in seen.containers
            if detail.container.state is ContainerState.RUNNING
        ]
        messages = [self.path(uid, row.name, row.attempt) for uid, row in running]
        await asyncio.to_thread(_cut_large, messages)
        files = {self._root.joinpath("pods", uid, hosts.FILE) for uid, _ in running}
        await asyncio.to_thread(_cut_large, files, hosts.MAX_BYTES, hosts.MAX_BYTES)

    def path(self, uid: str, container: str, attempt: int) -> Path:
        return self._root.joinpath("pods", uid, "containers", container, f"{attempt}.message")

    async def mount(self, uid: str, container: Container, attempt: int) -> Mount:
        """Create the file of an instance, and return its mount."""
        path = self.path(uid, container.name, attempt)
        await loops.finish_in_thread(partial(_make, path), name="termination message")
        return Mount(str(path), container.terminationMessagePath or DEFAULT_PATH)

    async def of(self, seen: ObservedPod, containers: Iterable[Container]) -> Mapping[str, str]:
        """Container id → message, for every ended instance that left one."""
        policies = {c.name: c.terminationMessagePolicy for c in containers}
        ended = [c for c in seen.containers if c.container.state is ContainerState.EXITED]
        unread = [detail for detail in ended if detail.container.id not in self._known]
        for detail in unread:
            fallback = policies.get(detail.container.name) == _FALLBACK
            text = await asyncio.to_thread(self._read, seen.uid, detail, fallback)
            self._known[detail.container.id] = text
        ids = [detail.container.id for detail in ended]
        return {container_id: text for container_id in ids if (text := self._known[container_id])}

    def forget(self, ids: Iterable[str]) -> None:
        """Drop the messages of removed containers."""
        for container_id in ids:
            self._known.pop(container_id, None)

    def _read(self, uid: str, detail: ContainerDetail, fallback: bool) -> str:
        path = self.path(uid, detail.container.name, detail.container.attempt)
        data = b""
        # The file is missing when an older agent made the container, or the pod is being removed.
        with contextlib.suppress(OSError), os.fdopen(descriptors.open_file(path), "rb") as stream:
            data = stream.read(MAX_BYTES)
        _cut_large([path])
        if not data and fallback and detail.exit_code != 0 and detail.log_path:
            data = _end_of_log(detail.log_path)
        return data.decode(errors="replace")


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o666)
    os.fchmod(descriptor, 0o666)  # writable for any user of the container
    os.close(descriptor)


def _cut_large(paths: Iterable[Path], large: int = _LARGE_BYTES, kept: int = MAX_BYTES) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # gone, or made by an older agent
            if path.stat(follow_symlinks=False).st_blocks * 512 > large:
                opened = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
                try:
                    os.ftruncate(opened, kept)
                finally:
                    os.close(opened)


def _end_of_log(path: str) -> bytes:
    """A pod that mounts the logs could make one without end."""
    shown = reader.LogFilter(reader.LogOptions())
    text = b""
    with contextlib.suppress(OSError), contextlib.closing(LogFile(path)) as log:
        log.seek_tail(_LOG_LINES, within_bytes=_LARGE_BYTES)
        for data in itertools.islice(iter(log.read, b""), _LOG_READS):
            text = (text + shown.feed(data))[-_LOG_BYTES:]
    return text
