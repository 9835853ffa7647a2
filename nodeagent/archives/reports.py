"""Reports checkpoints as pod events, and counts them for the metrics page.

Fed by the checkpoint service, the pruner and the monitor of frozen containers. `criu_reason` finds
why CRIU gave up, in the log that the runtime's error names and that goes with the container.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import Histogram

from nodeagent import descriptors
from nodeagent.archives.bounds import Removal
from orch.wire.records.pods import Pod

_CRIU_LOG = re.compile(r"(/[^\s:]*/(?:criu-)?dump\.log)(?![^\s:,;)])")
_CRIU_STAMP = re.compile(r"^\(\d+\.\d+\)\s*")
_TAIL_BYTES = 64 * 1024
_CRIU_LINES, _LINE_LENGTH = 5, 160
_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True, slots=True)
class StoreState:
    """The store after the last pruning; `excess_bytes`: by how much it exceeds its limits."""

    archives: int = 0
    pinned: int = 0
    used_bytes: int = 0
    free_bytes: int = 0
    limit_bytes: int = 0  # 0: no limit
    excess_bytes: int = 0


def _durations() -> Histogram:
    return Histogram(
        "nodeagent_checkpoint_duration_seconds",
        "[ALPHA] Duration of checkpoints, from the request to the published archive.",
        registry=None,
        buckets=_BUCKETS_S,
    )


@dataclass(slots=True)
class CheckpointCounts:
    """`results` by "success" and "error", `removed` by the bound's name."""

    results: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    thawed: int = 0
    store: StoreState | None = None  # None before the first pruning
    durations: Histogram = field(default_factory=_durations)


class PodEventRecorder(Protocol):
    """Records events about pods; `nodeagent.pods.events.PodEvents` implements it."""

    def normal(self, pod: Pod | None, reason: str, message: str) -> None: ...
    def warning(self, pod: Pod | None, reason: str, message: str) -> None: ...


class CheckpointReports:
    """For the event loop only; without `events` it just counts."""

    def __init__(self, events: PodEventRecorder | None = None) -> None:
        self.counts = CheckpointCounts()
        self._events = events

    def created(self, pod: Pod | None, container: str, archive: str, duration_s: float) -> None:
        self.counts.results["success"] += 1
        self.counts.durations.observe(duration_s)
        if self._events:
            self._events.normal(
                pod, "Checkpointed", f"Checkpointed container {container}: {archive}"
            )

    def failed(self, pod: Pod | None, message: str) -> None:
        self.counts.results["error"] += 1
        if self._events:
            self._events.warning(pod, "CheckpointFailed", message)

    def thawed(self, pod: Pod | None, container: str) -> None:
        self.counts.thawed += 1
        if self._events:
            text = f"Container {container} was left frozen by a checkpoint; it runs again"
            self._events.warning(pod, "ContainerThawed", text)

    def removed(self, pod: Pod | None, removal: Removal) -> None:
        """`pod` is None when it is gone."""
        self.counts.removed[removal.reason] += 1
        if self._events and pod:
            text = f"Removed the checkpoint archive {removal.archive.name}: {removal.why}"
            self._events.normal(pod, "CheckpointRemoved", text)


def criu_reason(error: str) -> str:
    """CRIU's last complaints, in one line, from the log whose path the error names. Blocking.

    "" where the error names no log, or none that can be read.
    """
    named = _CRIU_LOG.search(error)
    if not named:
        return ""
    try:
        lines = _tail(named[1]).splitlines()
    except OSError:
        return ""
    said = [line for line in lines if "Error (" in line] or lines
    return "; ".join(_shown(line) for line in said[-_CRIU_LINES:])


def _tail(path: str) -> str:
    opened = descriptors.open_file(path)
    try:
        begin = max(0, os.fstat(opened).st_size - _TAIL_BYTES)
        return os.pread(opened, _TAIL_BYTES, begin).decode(errors="replace")
    finally:
        os.close(opened)


def _shown(line: str) -> str:
    text = _CRIU_STAMP.sub("", line)[:_LINE_LENGTH]
    return "".join(char if char.isprintable() else "?" for char in text)
