"""The sampler: when readings happen, who shares them, and which one rates are computed from.

Readings run whole in one worker thread, one at a time. `step` belongs in a loop of a fixed rate;
`fresh` serves readers on demand, and readers that come while a reading runs get that one. Rates
are taken from the loop's readings alone, so that two scrapes within a moment do not leave a base
of a few milliseconds. A reading that hangs in the kernel blocks no reader for long: they get the
last sample, whose stamp tells its age, or an error when there is none yet.

Pods and containers that the slow loops have not come to yet: their disks are measured at once.

Directories, open files and what the runtime tells of disks are read once a minute, and what began
since would be shown without them for as long. So each reading of the sampling loop is looked at for
what is new, and that alone is measured; while nothing begins, nothing is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from nodeagent.runtime.base import SandboxUsage
from nodeagent.stats.cgroup.layout import Layout
from nodeagent.stats.host.processes import ProcessUsage
from nodeagent.stats.reading import Reader
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
_STALL_S = 5.0
_GOOD_BASE_NS = 5_000_000_000
_LEAST_BASE_NS = 1_000_000_000
_KEPT_BASES = 3

Targets = Callable[[], Sequence[PodTarget]]
Measured = Callable[[], Mapping[str, SandboxUsage]]
Refresh = Callable[[Layout, Sequence[PodTarget], Sequence[PodSample]], None]


class NoSampleYetError(TimeoutError):
    """The first reading of all has not ended in time."""


class Sampler:
    """`latest` is None before the first reading; `beats` counts readings that ended.

    `measured` gives the pods, by uid, whose numbers are taken from the runtime.
    """

    def __init__(
        self,
        *,
        targets: Targets,
        cgroup_root: str = "/sys/fs/cgroup",
        proc_root: str = "/proc",
        sources: Sources | None = None,
        background: Background | None = None,
        measured: Measured = dict,
    ) -> None:
        self.latest: Sample | None = None
        self.beats = 0
        sources = sources or Sources(cgroup_root=cgroup_root, proc_root=proc_root)
        self.background = background or Background(processes=ProcessUsage(sources.proc_root))
        self.reader = Reader(sources, self.background)
        self._targets = targets
        self._measured = measured
        self._bases: deque[Sample] = deque(maxlen=_KEPT_BASES)
        self._running: asyncio.Task[Sample] | None = None
        self._latest_begun_s = 0.0
        self._hanging = OnceLog(log)
        self._refreshing = asyncio.Lock()

    @property
    def previous(self) -> Sample | None:
        """The sample to compute rates of `latest` from; None when there is none old enough."""
        return self.latest and self.base_of(self.latest)

    def base_of(self, sample: Sample) -> Sample | None:
        """The newest of the loop's samples at least 5 s older, else the oldest 1 s older."""
        ages = [(sample.time_ns - base.time_ns, base) for base in reversed(self._bases)]
        for age_ns, base in ages:
            if age_ns >= _GOOD_BASE_NS:
                return base
        old_enough = [base for age_ns, base in ages if age_ns >= _LEAST_BASE_NS]
        return old_enough[-1] if old_enough else None

    async def step(self) -> None:
        """One reading of the loop: the next base of rates."""
        self._bases.append(await self.sample())

    async def step_disks(self) -> None:
        """Walk the directories of all pods, count open files; for a loop slower by far."""
        await self._step_aside(self.background.refresh)

    async def step_new_disks(self) -> None:
        """The same for what no such step has come to yet, and nothing else."""
        await self._step_aside(self.background.refresh_new)

    async def _step_aside(self, refresh: Refresh) -> None:
        async with self._refreshing:
            pods = self.latest.pods if self.latest else ()
            targets = tuple(self._targets())
            await run_in_thread(
                lambda: refresh(self.reader.layout, targets, pods), name="directories"
            )

    async def sample(self) -> Sample:
        """A reading that begins now, or the one that runs already."""
        if self._running is None or self._running.done():
            self._running = loops.spawn(self._read(), name="sample")
        return await asyncio.shield(self._running)

    async def fresh(self, max_age_s: float = MAX_AGE_S) -> Sample:
        """A sample not older than `max_age_s`; an older one only while a reading hangs.

        NoSampleYetError when it is the first that hangs.
        """
        if self.latest is not None and self.age_s() <= max_age_s:
            return self.latest
        try:
            async with asyncio.timeout(_STALL_S):
                return await self.sample()
        except TimeoutError:
            if self.latest is None:
                text = f"the first reading of statistics takes more than {_STALL_S:g} s"
                raise NoSampleYetError(text) from None
            self._hanging.failed(
                "reading the statistics takes more than %g s; the last ones are served", _STALL_S
            )
            return self.latest

    def working_set_bytes(self, container_id: str) -> int:
        """What a container had in memory at the last reading; 0 when it was not read."""
        pods = self.latest.pods if self.latest else ()
        for container in (one for pod in pods for one in pod.containers):
            if container.target.id == container_id and container.cgroup:
                memory = container.cgroup.memory
                return (memory.working_set_bytes or 0) if memory else 0
        return 0

    def durations_s(self) -> dict[str, float]:
        """How long the last reading took, whole and in parts, and the last background ones."""
        return {
            "sample": self.latest.duration_s if self.latest else 0.0,
            **self.reader.durations_s,
            "directories": self.background.directories.duration_s,
            "processes": self.background.processes.duration_s,
        }

    async def close(self) -> None:
        """Close every descriptor, after the running reading; one that hangs keeps its own."""
        if self._running is not None:
            await asyncio.wait([self._running], timeout=_STALL_S)
            if not self._running.done():
                log.warning("a reading of statistics still hangs in the kernel; leaving without it")
                await loops.cancel(self._running)
                return
        self.reader.close()

    def age_s(self) -> float:
        """Loop time since the latest reading began; meaningless before the first."""
        return asyncio.get_running_loop().time() - self._latest_begun_s

    async def _read(self) -> Sample:
        begun_s = asyncio.get_running_loop().time()
        targets, measured = tuple(self._targets()), self._measured()
        sample = await run_in_thread(lambda: self.reader.read(targets, measured), name="sample")
        self.latest = sample
        self._latest_begun_s = begun_s
        self._hanging.recovered("the reading of the statistics that hung has ended")
        self.beats += 1
        return sample


_LATE_INTERVALS = 3


class SamplingCheck:
    """Is the machine still read? `interval_s` says how often it should be."""

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


_TRIES = 3  # a runtime gathers every ten seconds or so what layers use


class NewDisks:
    """`look` after each reading of the sampling loop; `run` measures what it found."""

    def __init__(self, sampler: Sampler, disks: RuntimeDiskLoop | None) -> None:
        self._sampler = sampler
        self._disks = disks
        self._targets: list[PodTarget] = []  # as they were when last looked at
        self._asked: dict[str, int] = {}  # of each container: how often for its layer
        self._unknown: list[str] = []  # containers whose layer is asked for again
        self._loop = loops.Periodic("new disks", self.step, interval_s=DISK_INTERVAL_S)

    async def run(self) -> None:
        await self._loop.run()

    def look(self) -> None:
        """Measure soon what the latest reading shows for the first time, or still lacks a layer."""
        if self.is_due():
            self._loop.wake()

    def is_due(self) -> bool:
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
        known = disks.latest.writable_layers
        return [each for each, times in self._asked.items() if times < _TRIES and each not in known]

    def _shown(self) -> list[PodTarget]:
        latest = self._sampler.latest
        return [pod.target for pod in latest.pods] if latest else []
