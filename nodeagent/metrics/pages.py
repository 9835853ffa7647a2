"""The three statistics pages as bytes: made once per sample, however many readers ask.

A page is made in a worker thread, because that of a big node takes longer than the event loop may
be kept; readers that come meanwhile share it. Compressed bytes are kept like plain ones. While
readers keep coming the next sample and its pages are made before the last one is too old, and so
are the pages of the loop's own samples: nobody waits, for until then the young page of the sample
before will do. What is made ahead gives way to answers that are being sent, since on a small
machine the one takes from the other. The page for autoscalers, which every node is asked for all
the time, shows the sampling loop's last reading as the reference agent's does, with its stamps. A
sample that could not be taken makes the pages that say so; the summary alone is an error then.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import orjson

from nodeagent.metrics import containerstats, resource
from nodeagent.stats.host.machine import HostFacts
from nodeagent.stats.sampler import INTERVAL_S, MAX_AGE_S, NoSampleYetError, Sampler
from nodeagent.stats.samples import Sample
from nodeagent.stats.summary import build_summary
from orch.component.http import negotiation
from orch.component.http.sliced_response import Data, Sending
from orch.component.process import loops
from orch.wire.errors import ApiError

log = logging.getLogger(__name__)

RESOURCE_MAX_AGE_S = 2 * INTERVAL_S  # older ones only where the loop is slower, or late
_RENEW_AT = 0.6  # of the greatest age: from then on a reader has the next sample made
_GIVE_WAY_S = 0.1  # to answers under way; three times that and the work itself fit in the rest
_GZIP_LEVEL = 1  # 12 times smaller; level 6 makes it 14 times at three times the cost

GiveWay = Callable[[], None]
Make = Callable[[Sample | None, Sample | None, GiveWay], Data]
Key = tuple[str, bool, bool]


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent: `encoding` is gzip or empty."""

    data: Data
    content_type: str
    encoding: str = ""


def body_of(data: Data, content_type: str, accept_encoding: str) -> Body:
    """A page as it is sent: compressed for a client that takes it so."""
    if negotiation.wants_gzip(accept_encoding):
        return Body(gzip.compress(data, _GZIP_LEVEL), content_type, "gzip")
    return Body(data, content_type)


@dataclass(frozen=True, slots=True)
class _Made:
    sample: Sample | None
    base: Sample | None
    begun_s: float  # the sample's reading, loop time as the next
    task: asyncio.Task[Data]
    make: Make
    asked_s: float
    older: _Made | None = None  # what is shown until this one is made


class StatsPages:
    """`psi` is the feature gate; `host` adds the machine's own metrics."""

    def __init__(
        self,
        sampler: Sampler,
        *,
        node_name: str,
        psi: bool = True,
        host: HostFacts | None = None,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        self.sending = Sending()  # of whoever answers with the pages
        self._sampler = sampler
        self._node_name = node_name
        self._psi = psi
        self._host = host
        self._max_age_s = max_age_s
        self._made: dict[Key, _Made] = {}
        self._renewal: asyncio.Task[None] | None = None
        self._failing: dict[str, str] = {}  # page → why it shows nothing, as it was said

    async def summary(
        self, *, only_cpu_and_memory: bool = False, accept_encoding: str = ""
    ) -> Body:
        """/stats/summary; ApiError 500 while there is nothing to show, other errors are raised."""

        def make(sample: Sample | None, base: Sample | None, _: GiveWay) -> bytes:
            if sample is None:
                raise RuntimeError("there is no sample to make the summary of")
            summary = build_summary(
                sample,
                base,
                node_name=self._node_name,
                only_cpu_and_memory=only_cpu_and_memory,
                psi=self._psi,
            )
            return orjson.dumps(summary)

        try:
            sample = await self._sample(self._max_age_s)
        except NoSampleYetError as error:
            raise ApiError(500, "InternalError", str(error)) from error
        name = "summary of cpu and memory" if only_cpu_and_memory else "summary"
        return await self._body(name, make, sample, "application/json", accept_encoding)

    async def resource(self, *, accept: str = "", accept_encoding: str = "") -> Body:
        """/metrics/resource."""
        openmetrics = negotiation.wants_openmetrics(accept)

        def make(sample: Sample | None, _: Sample | None, __: GiveWay) -> Data:
            return resource.render_resource_metrics(sample, openmetrics=openmetrics)

        max_age_s = max(RESOURCE_MAX_AGE_S, self._max_age_s)
        return await self._metrics("resource", make, openmetrics, accept_encoding, max_age_s)

    async def containers(self, *, accept: str = "", accept_encoding: str = "") -> Body:
        """/metrics/containerstats."""
        openmetrics = negotiation.wants_openmetrics(accept)

        def make(sample: Sample | None, _: Sample | None, give_way: GiveWay) -> Data:
            return containerstats.render_container_metrics(
                sample,
                openmetrics=openmetrics,
                psi=self._psi,
                host=self._host,
                give_way=give_way,
            )

        return await self._metrics(
            "containers", make, openmetrics, accept_encoding, self._max_age_s
        )

    async def _metrics(
        self, name: str, make: Make, openmetrics: bool, encoding: str, max_age_s: float
    ) -> Body:
        content_type = negotiation.OPENMETRICS_TYPE if openmetrics else negotiation.TEXT_TYPE
        try:
            sample = await self._sample(max_age_s)
            body = await self._body(name, make, sample, content_type, encoding)
        except Exception as error:  # the page itself says that there is nothing to scrape
            self._say_failure(name, error)
            return Body(make(None, None, _at_once), content_type)
        self._failing.pop(name, None)
        return body

    def _say_failure(self, name: str, error: Exception) -> None:
        """Once per cause, for scrapers come every few seconds; with a trace if it is a defect."""
        if self._failing.get(name) != str(error):
            self._failing[name] = str(error)
            defect = None if isinstance(error, NoSampleYetError) else error
            log.error("the %s page shows no statistics: %s", name, error, exc_info=defect)

    async def _body(
        self, name: str, make: Make, sample: Sample, content_type: str, accept_encoding: str
    ) -> Body:
        packed = negotiation.wants_gzip(accept_encoding)
        key = (name, content_type == negotiation.OPENMETRICS_TYPE, packed)
        made = self._page(key, make, sample, _loop_s())
        if made.older and not made.task.done() and self._is_young(made.older):
            made = made.older
        data = await asyncio.shield(made.task)
        return Body(data, content_type, "gzip" if packed else "")

    def _page(self, key: Key, make: Make, sample: Sample, asked_s: float) -> _Made:
        """The page of this sample, begun now unless it was before.

        While pages are made ahead, the young one of the sample before will do.
        """
        made = self._made.get(key)
        will_do = made is not None and (
            self._shows(made, sample)
            or (self._is_renewing and made.task.done() and self._is_young(made))
        )
        if made is None or not will_do:
            made = self._start(key, make, sample, _at_once)
        made = self._made[key] = replace(made, asked_s=asked_s)
        return made

    def _shows(self, made: _Made, sample: Sample) -> bool:
        return made.sample is sample and made.base is self._sampler.base_of(sample)

    def _is_young(self, made: _Made) -> bool:
        return _loop_s() - made.begun_s <= self._max_age_s

    def _start(self, key: Key, make: Make, sample: Sample, give_way: GiveWay) -> _Made:
        base = self._sampler.base_of(sample)
        task = loops.spawn(
            asyncio.to_thread(_make, lambda: make(sample, base, give_way), key[2]),
            name=f"page {key[0]}",
        )
        self._forget_later(key, weakref.ref(task))
        now_s = _loop_s()
        return _Made(sample, base, now_s - self._sampler.age_s(), task, make, now_s)

    def _forget_later(self, key: Key, task: weakref.ref[asyncio.Task[Data]]) -> None:
        """Megabytes that nobody can be sent any more are not kept until somebody asks anew."""

        def forget() -> None:
            made = self._made.get(key)
            if made is not None and made.task is task():
                del self._made[key]

        asyncio.get_running_loop().call_later(2 * self._max_age_s, forget)

    async def step(self) -> None:
        """The sampling loop's step: its reading, and the pages of it for those who keep asking."""
        await self.sending.ended(within_s=_GIVE_WAY_S)
        await self._sampler.step()
        self._begin(self._make_again, "pages of the sample")

    async def _sample(self, max_age_s: float) -> Sample:
        sample = await self._sampler.fresh(max_age_s)
        if self._sampler.age_s() > max_age_s * _RENEW_AT:
            self._begin(self._renew, "renew statistics")
        return sample

    @property
    def _is_renewing(self) -> bool:
        return self._renewal is not None and not self._renewal.done()

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        if not self._is_renewing:
            self._renewal = loops.spawn(work(), name=name)

    async def _renew(self) -> None:
        """The next sample, and its pages for those who asked for the last one's."""
        await self.sending.ended(within_s=_GIVE_WAY_S)
        try:
            await self._sampler.sample()
        except Exception:
            log.debug("renewing the statistics failed; the next reader meets it", exc_info=True)
            return
        await self._make_again()

    async def _make_again(self) -> None:
        """The pages of the latest sample that were asked for a moment ago."""
        recently_s = _loop_s() - 2 * self._max_age_s
        give_way = self.sending.courtesy(_GIVE_WAY_S)
        for key in tuple(self._made):
            await self.sending.ended(within_s=_GIVE_WAY_S)
            made, sample = self._made.get(key), self._sampler.latest
            if made and sample and made.asked_s >= recently_s and not self._shows(made, sample):
                await self._make_ahead(key, made, sample, give_way)

    async def _make_ahead(self, key: Key, made: _Made, sample: Sample, give_way: GiveWay) -> None:
        page = self._start(key, made.make, sample, give_way)
        older = replace(made, older=None)
        self._made[key] = replace(page, asked_s=made.asked_s, older=older)
        await asyncio.wait([page.task])
        latest = self._made.get(key)
        if latest is not None and latest.task is page.task:
            self._made[key] = replace(latest, older=None)


def _loop_s() -> float:
    return asyncio.get_running_loop().time()


def _at_once() -> None:
    """Gives way to nobody: somebody waits."""


def _make(make: Callable[[], Data], wants_gzip: bool) -> Data:
    data = make()
    return gzip.compress(data, _GZIP_LEVEL) if wants_gzip else data
