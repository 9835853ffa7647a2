"""Pods and containers that the slow loops have not come to yet: their disks are measured at once.

Directories, open files and what the runtime tells of disks are read once a minute, and what began
since would be shown without them for as long. So each reading of the sampling loop is looked at for
what is new, and that alone is measured; while nothing begins, nothing is.
"""

from __future__ import annotations

from nodeagent.stats.layers import RuntimeDiskLoop
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import PodTarget

_TRIES = 3  # a runtime gathers every ten seconds or so what layers use


class Newcomers:
    """`have_come` is asked after each reading of the loop; where they have, `step` is due."""

    def __init__(self, sampler: Sampler, disks: RuntimeDiskLoop | None) -> None:
        self._sampler = sampler
        self._disks = disks
        self._targets: list[PodTarget] = []  # as they were when last looked at
        self._asked: dict[str, int] = {}  # of each container: how often for its layer
        self._unknown: list[str] = []  # containers whose layer is asked for again

    def have_come(self) -> bool:
        """Whether the latest reading shows what was not there, or a layer is still to be told."""
        return bool(self._unknown) or self._shown() != self._targets

    async def step(self) -> None:
        """Measure what is new; a layer that the runtime does not know is left to its own loop."""
        targets = self._shown()
        if targets != self._targets:
            await self._sampler.step_new_disks()
            containers = [one.id for target in targets for one in target.containers]
            self._asked = {each: self._asked.get(each, 0) for each in containers}
            self._targets = targets
        if self._disks is not None:
            await self._ask(self._disks)

    async def _ask(self, disks: RuntimeDiskLoop) -> None:
        unknown = self._worth_asking(disks)
        if unknown:
            await disks.step_new(unknown)
            self._asked.update({each: self._asked[each] + 1 for each in unknown})
        self._unknown = self._worth_asking(disks)

    def _worth_asking(self, disks: RuntimeDiskLoop) -> list[str]:
        known = disks.latest.layers
        return [each for each, times in self._asked.items() if times < _TRIES and each not in known]

    def _shown(self) -> list[PodTarget]:
        latest = self._sampler.latest
        return [pod.target for pod in latest.pods] if latest else []
