"""What is told of checkpoints: as events of the pod, and as counts for the metrics page.

What the metrics page shows of checkpoints; written by the service, the pruner and the thaw.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import Histogram

from nodeagent.archives.bounds import Removal
from orch.wire.records.pods import Pod

_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True, slots=True)
class StoreState:
    """The store when it was last looked at; `excess_bytes` is what it may not hold, yet does."""

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
    store: StoreState | None = None  # None until it was looked at
    took: Histogram = field(default_factory=_durations)

    def observe(self, duration_s: float) -> None:
        """A checkpoint was made in that time."""
        self.results["success"] += 1
        self.took.observe(duration_s)


class PodNews(Protocol):
    """Where events about pods go; `nodeagent.pods.events.PodEvents` is one."""

    def normal(self, pod: Pod | None, reason: str, message: str) -> None: ...
    def warning(self, pod: Pod | None, reason: str, message: str) -> None: ...


class Reports:
    """Call it in the event loop; without `news` only the counts are kept."""

    def __init__(self, news: PodNews | None = None) -> None:
        self.counts = CheckpointCounts()
        self._news = news

    def made(self, pod: Pod | None, container: str, archive: str, began_s: float) -> None:
        """`began_s` by the loop's clock."""
        self.counts.observe(asyncio.get_running_loop().time() - began_s)
        if self._news:
            self._news.normal(pod, "Checkpointed", f"Checkpointed container {container}: {archive}")

    def failed(self, pod: Pod | None, message: str) -> None:
        self.counts.results["error"] += 1
        if self._news:
            self._news.warning(pod, "CheckpointFailed", message)

    def thawed(self, pod: Pod | None, container: str) -> None:
        self.counts.thawed += 1
        if self._news:
            text = f"Container {container} was left frozen by a checkpoint; it runs again"
            self._news.warning(pod, "ContainerThawed", text)

    def removed(self, pod: Pod | None, removal: Removal) -> None:
        """`pod` is None when it is gone."""
        self.counts.removed[removal.reason] += 1
        if self._news and pod:
            text = f"Removed the checkpoint archive {removal.archive.name}: {removal.why}"
            self._news.normal(pod, "CheckpointRemoved", text)
