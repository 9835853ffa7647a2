"""Notices pressure, looks closer while it lasts, and answers who causes it.

After each reading of the sampling loop `look` compares the machine's stalls with the last one's; a
quiet machine costs nothing more. While it is stalled a closer look is taken at once, and then ever
more rarely, so that a cause has a beginning. `report` looks by itself: twice within two seconds if
there is pressure, else once for what somebody has stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from nodeagent.pressure import evidence, report
from nodeagent.pressure.causes import rank
from nodeagent.pressure.causes.cause import Cause
from nodeagent.pressure.closer import CloserReader
from nodeagent.pressure.evidence import CloserLook, Evidence, Stopped, Subject
from nodeagent.stats.sampler import NoSampleYetError, Sampler
from nodeagent.stats.samples import Sample
from orch.component.process import loops
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.component.process.threads import NoThreadError, run_in_thread
from orch.wire.errors import ApiError

log = logging.getLogger(__name__)

_PAIR_S = 2.0  # between the two closer looks of a report
_PAIR_MAX_NS = 15_000_000_000  # an older look is no base
_EASED = 12  # closer looks come at most so many readings apart
_FORGET_NS = 180_000_000_000  # a cause not seen for so long begins anew
_IDLE_S = 3600.0  # the loop runs when it is woken


class Findings(NamedTuple):
    """What is known of a sample's pressure; without `evidence` nothing yet of the last seconds.

    `since_ns` tells since when there is which cause, by resource, kind and culprit.
    """

    sample: Sample
    evidence: Evidence | None
    causes: tuple[Cause, ...]
    since_ns: Mapping[tuple[str, str, Subject], int]


class PressureWatch:
    """`cpus` are those of the machine; `reader` takes the closer looks."""

    def __init__(
        self,
        sampler: Sampler,
        reader: CloserReader,
        *,
        node_name: str,
        cpus: int,
        pair_s: float = _PAIR_S,
    ) -> None:
        self._sampler = sampler
        self._reader = reader
        self._node_name = node_name
        self._cpus = cpus
        self._pair_s = pair_s
        self._last_look: CloserLook | None = None
        self._since_ns: dict[tuple[str, str, Subject], int] = {}
        self._seen_ns: dict[tuple[str, str, Subject], int] = {}
        self._stalled = 0  # readings in a row
        self._asking = asyncio.Lock()
        self._answer: asyncio.Task[Findings] | None = None
        self._defects = OnceLog(log, logging.ERROR)
        self._loop = Periodic("pressure", self.step, interval_s=_IDLE_S)

    async def run(self) -> None:
        """Look closer whenever `look` finds the machine stalled, until cancelled."""
        await self._loop.run()

    def look(self) -> None:
        """Call after each reading of the sampling loop: cheap where nothing is stalled."""
        latest = self._sampler.latest
        base = self._sampler.base_of(latest) if latest else None
        if latest is None or base is None or not rank.is_stalled(evidence.stalls(base, latest)):
            self._stalled = 0
            return
        self._stalled += 1
        if self._stalled <= 2 or self._stalled % _EASED == 0:
            self._loop.wake()

    async def step(self) -> None:
        """Look closer and note since when there is which cause; a defect here ends no agent."""
        try:
            async with self._asking:
                await self._note_stalls()
        except NoThreadError:
            raise
        except Exception as error:
            self._defects.failed("looking for the cause of pressure failed", error=error)
        else:
            self._defects.recovered()

    async def report(self) -> bytes:
        """The JSON of `/pressure`; ApiError 500 before the first sample."""
        found = await self.findings()
        return report.render(
            self._node_name, found.sample, found.evidence, found.causes, found.since_ns
        )

    async def findings(self) -> Findings:
        """Who causes what now, shared by all who ask meanwhile; ApiError 500 if unread."""
        if self._answer is None or self._answer.done():
            self._answer = loops.spawn(self._find(), name="pressure")
        return await asyncio.shield(self._answer)

    async def _note_stalls(self) -> None:
        latest = self._sampler.latest
        base = self._sampler.base_of(latest) if latest else None
        if latest is None or base is None:
            return
        if rank.is_stalled(evidence.stalls(base, latest)):
            await self._examine(base, latest)

    async def _find(self) -> Findings:
        async with self._asking:
            try:
                latest = await self._sampler.fresh()
            except NoSampleYetError as error:
                raise ApiError(500, "InternalError", str(error)) from error
            base = self._sampler.base_of(latest)
            if base is None:
                return Findings(latest, None, (), {})
            samples = base, latest
            stopped = await run_in_thread(
                lambda: self._reader.stopped(*samples), name="stopped processes"
            )
            if not rank.is_stalled(evidence.stalls(base, latest)):
                return self._judge(base, latest, None, stopped)
            if not self._has_base(latest):
                await self._look_closer(latest)
                await asyncio.sleep(self._pair_s)
                latest = await self._sampler.sample()
                base = self._sampler.base_of(latest) or base
            return await self._examine(base, latest, stopped)

    def _has_base(self, latest: Sample) -> bool:
        last = self._last_look
        return last is not None and 10**9 <= latest.time_ns - last.time_ns <= _PAIR_MAX_NS

    async def _look_closer(self, latest: Sample) -> CloserLook:
        look = await run_in_thread(lambda: self._reader.read(latest), name="closer look")
        self._last_look = look
        return look

    async def _examine(
        self, base: Sample, latest: Sample, stopped: list[Stopped] | None = None
    ) -> Findings:
        before = self._last_look
        after = await self._look_closer(latest)
        return self._judge(base, latest, (before, after) if before else None, stopped or [])

    def _judge(
        self,
        base: Sample,
        latest: Sample,
        looks: tuple[CloserLook, CloserLook] | None,
        stopped: list[Stopped],
    ) -> Findings:
        seen = evidence.evidence(base, latest, cpus=self._cpus, looks=looks, stopped=stopped)
        causes = rank.causes_of(seen)
        self._note(causes, base.time_ns, latest.time_ns)
        return Findings(latest, seen, causes, dict(self._since_ns))

    def _note(self, causes: tuple[Cause, ...], begun_ns: int, now_ns: int) -> None:
        """Remember since when; a cause seen for the first time is as old as the base."""
        for key in [key for key, ns in self._seen_ns.items() if now_ns - ns > _FORGET_NS]:
            del self._seen_ns[key], self._since_ns[key]
        for cause in causes:
            key = (cause.resource, cause.kind, cause.culprit)
            if key not in self._since_ns:
                self._since_ns[key] = begun_ns
            self._seen_ns[key] = now_ns
