"""What is told of checkpoints: as events of the pod, and as counts for the metrics page."""

from __future__ import annotations

import asyncio
from typing import Protocol

from nodeagent.checkpoint.bounds import Removal
from nodeagent.checkpoint.counts import CheckpointCounts
from orch.wire.pods import Pod


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
