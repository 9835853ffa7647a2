"""Reports checkpoints as pod events, and counts them for the metrics page.

Fed by the checkpoint service, the pruner and the monitor of frozen containers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import Histogram

from nodeagent.archives.bounds import Removal
from orch.wire.records.pods import Pod

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
