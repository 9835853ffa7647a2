"""The sampler: takes readings in a loop and on demand, and holds the base of rates.

Readings run in one worker thread, one at a time. `step` belongs in a loop of a fixed rate; `fresh`
serves readers on demand, who share a reading under way. Rates use the loop's readings alone, as two
scrapes in quick succession would leave a base of a few milliseconds. While a reading hangs in the
kernel, readers get the last sample, whose stamp shows its age. `NewDisks` measures what the slow
loops (directories, open files, layers) have not covered yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from nodeagent.runtime.base import SandboxUsage
from nodeagent.stats.cgroup.layout import Layout
from nodeagent.stats.reading import HostReader
from nodeagent.stats.runtime import RuntimeDiskLoop
from nodeagent.stats.samples import PodSample, PodTarget, Sample
from nodeagent.stats.sources import Background, Sources
from orch.component.diagnostics.health import CheckFailed
from orch.component.process import loops
from orch.component.process.once_log import OnceLog
from orch.component.process.threads import run_in_thread

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
DISK_INTERVAL_S = 60.0
MAX_AGE_S = 1.0
STALL_S = 5.0
_GOOD_BASE_NS = 5_000_000_000
_MIN_BASE_NS = 1_000_000_000
_MAX_BASES = 3

Targets = Callable[[], Sequence[PodTarget]]
Measured = Callable[[], Mapping[str, SandboxUsage]]
Refresh = Callable[[Layout, Sequence[PodTarget], Sequence[PodSample]], None]


class NoSampleYetError(TimeoutError):
    """The very first reading has not finished in time."""


class Sampler:
    """`latest` is None before the first reading; `readings` counts the finished ones.

    `measured` returns the pods, by uid, whose numbers come from the runtime.
    """

    def __init__(
        self,
        *,
        targets: Targets,
        sources: Sources,
        measured: Measured = dict,
    ) -> None:
        self.latest: Sample | None = None
        self.readings = 0
        self.background = Background(sources)
        self.reader = HostReader(sources, self.background)
        self._targets = targets
        self._measured = measured
        self._bases: deque[Sample] = deque(maxlen=_MAX_BASES)
        self._running: asyncio.Task[Sample] | None = None
        self._latest_begun_s = 0.0
        self._hanging = OnceLog(log)
        self._refreshing = asyncio.Lock()

    def base_of(self, sample: Sample) -> Sample | None:
        """The loop's newest sample at least 5 s older, else its oldest at least 1 s older."""
        ages = [(sample.time_ns - base.time_ns, base) for base in reversed(self._bases)]
        for age_ns, base in ages:
            if age_ns >= _GOOD_BASE_NS:
                return base
        old_enough = [base for age_ns, base in ages if age_ns >= _MIN_BASE_NS]
        return old_enough[-1] if old_enough else None

    async def step(self) -> None:
        """Take a sample for the loop: the next base of rates."""
        self._bases.append(await self.sample())

    async def step_disks(self) -> None:
        """Walk the directories of all pods and count open files; for a much slower loop."""
        await self._refresh_disks(self.background.refresh)

    async def step_new_disks(self) -> None:
        """The same for directories and containers that `step_disks` has not covered yet."""
        await self._refresh_disks(self.background.refresh_new)

    async def _refresh_disks(self, refresh: Refresh) -> None:
        async with self._refreshing:
            pods = self.latest.pods if self.latest else ()
            targets = tuple(self._targets())
            await run_in_thread(
                lambda: refresh(self.reader.layout, targets, pods), name="directories"
            )

    async def sample(self) -> Sample:
        """A sample that begins now, or the one already under way."""
        if self._running is None or self._running.done():
            self._running = loops.spawn(self._read(), name="sample")
        return await asyncio.shield(self._running)

    async def fresh(self, max_age_s: float = MAX_AGE_S) -> Sample:
        """A sample not older than `max_age_s`; an older one only while a reading hangs.

        NoSampleYetError when the first reading hangs.
        """
        if self.latest is not None and self.age_s() <= max_age_s:
            return self.latest
        try:
            async with asyncio.timeout(STALL_S):
                return await self.sample()
        except TimeoutError:
            if self.latest is None:
                text = f"the first reading of statistics takes more than {STALL_S:g} s"
                raise NoSampleYetError(text) from None
            self._hanging.failed(
                "reading the statistics takes more than %g s; the last ones are served", STALL_S
            )
            return self.latest

    def working_set_bytes(self, container_id: str) -> int:
        """A container's working set at the last reading; 0 when it was not read."""
        pods = self.latest.pods if self.latest else ()
        for container in (container for pod in pods for container in pod.containers):
            if container.target.id == container_id and container.cgroup:
                memory = container.cgroup.memory
                return (memory.working_set_bytes or 0) if memory else 0
        return 0

    def durations_s(self) -> dict[str, float]:
        """Durations of the last reading, in all and by part, and of the background refreshes."""
        return {
            "sample": self.latest.duration_s if self.latest else 0.0,
            **self.reader.durations_s,
            "directories": self.background.directories.duration_s,
            "processes": self.background.processes.duration_s,
        }

    async def close(self) -> None:
        """Close every descriptor after the running reading; one that hangs keeps its own."""
        if self._running is not None:
            await asyncio.wait([self._running], timeout=STALL_S)
            if not self._running.done():
                log.warning("a reading of statistics still hangs in the kernel; not waiting for it")
                await loops.cancel(self._running)
                return
        self.reader.close()

    def age_s(self) -> float:
        """Loop time since the latest finished reading began; meaningless before the first."""
        return asyncio.get_running_loop().time() - self._latest_begun_s

    async def _read(self) -> Sample:
        begun_s = asyncio.get_running_loop().time()
        targets, measured = tuple(self._targets()), self._measured()
        sample = await run_in_thread(lambda: self.reader.read(targets, measured), name="sample")
        self.latest = sample
        self._latest_begun_s = begun_s
        self._hanging.recovered("the hanging reading of the statistics has finished")
        self.readings += 1
        return sample


_LATE_INTERVALS = 3


class SamplingCheck:
    """A health check: is the machine still sampled, every `interval_s`?"""

    def __init__(self, sampler: Sampler, interval_s: Callable[[], float]) -> None:
        self._sampler = sampler
        self._interval_s = interval_s
        self._started_s = asyncio.get_running_loop().time()

    def __call__(self) -> None:
        """CheckFailed when a reading has been due for three intervals."""
        limit_s = _LATE_INTERVALS * self._interval_s()
        if self._sampler.latest is None:
            age_s = asyncio.get_running_loop().time() - self._started_s
            if age_s > limit_s:
                raise CheckFailed(f"there is no reading of statistics after {age_s:.0f} s")
        elif (age_s := self._sampler.age_s()) > limit_s:
            raise CheckFailed(f"the last reading of statistics is {age_s:.0f} s old")


_MAX_LAYER_QUERIES = 3  # runtimes measure layers about every ten seconds


class NewDisks:
    """Measures the disks of new pods and containers before the slow loops would.

    Call `look` after each reading of the sampling loop; `run` measures what it found.
    """

    def __init__(self, sampler: Sampler, disks: RuntimeDiskLoop | None) -> None:
        self._sampler = sampler
        self._disks = disks
        self._targets: list[PodTarget] = []  # at the last step
        self._layer_queries: dict[str, int] = {}  # by container: how often its layer was queried
        self._missing: list[str] = []  # containers whose layer is queried again
        self._loop = loops.Periodic("new disks", self.step, interval_s=DISK_INTERVAL_S)

    async def run(self) -> None:
        """Measure whenever `look` finds something new, until cancelled."""
        await self._loop.run()

    def look(self) -> None:
        """Wake `run` when the latest sample has new targets, or a layer is still missing."""
        if self.is_due():
            self._loop.wake()

    def is_due(self) -> bool:
        """Whether there is something to measure."""
        return bool(self._missing) or self._latest_targets() != self._targets

    async def step(self) -> None:
        """Measure what is new; a layer that the runtime does not report is left to its loop."""
        targets = self._latest_targets()
        if targets != self._targets:
            await self._sampler.step_new_disks()
            ids = [container.id for target in targets for container in target.containers]
            self._layer_queries = {id_: self._layer_queries.get(id_, 0) for id_ in ids}
            self._targets = targets
        if self._disks is not None:
            await self._query_layers(self._disks)

    async def _query_layers(self, disks: RuntimeDiskLoop) -> None:
        missing = self._missing_layers(disks)
        if missing:
            await disks.step_new(missing)
            self._layer_queries.update({id_: self._layer_queries[id_] + 1 for id_ in missing})
        self._missing = self._missing_layers(disks)

    def _missing_layers(self, disks: RuntimeDiskLoop) -> list[str]:
        known = disks.latest.writable_layers
        return [
            id_
            for id_, queries in self._layer_queries.items()
            if queries < _MAX_LAYER_QUERIES and id_ not in known
        ]

    def _latest_targets(self) -> list[PodTarget]:
        latest = self._sampler.latest
        return [pod.target for pod in latest.pods] if latest else []
