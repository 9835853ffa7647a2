"""The three statistics pages as bytes: an edition of them per sample, however many readers ask.

A page is made in a worker thread, because that of a big node takes longer than the event loop may
be kept. The page for autoscalers, which every node is asked for all the time, shows the sampling
loop's last reading as the reference agent's does, with its stamps. A sample that could not be taken
makes the pages that say so; the summary alone is an error then.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
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
from orch.component.process.once_log import OnceLog
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


# While readers keep coming, the next sample and whatever pages they ask for are made before the
# edition they are shown is too old, and then take its place at once: nobody waits for a reading.
# What is made ahead lets answers under way go first, for on few cores the one takes from the other.
# Without that, by turns in one run as `BENCH_PARTS=serving python -m tools.bench statistics` asks:
# p95 2.6 times as long at 330 containers, 1.9 at 1,000; without giving way 1.1 and 1.4.
@dataclass(slots=True, eq=False)
class _Edition:
    """The pages of one sample; `asked` are those that readers wanted of it.

    `begun_s` is when its reading began, in loop time.
    """

    sample: Sample
    base: Sample | None
    begun_s: float
    pages: dict[Key, asyncio.Task[Data]] = field(default_factory=dict)
    asked: dict[Key, Make] = field(default_factory=dict)


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
        self._shown: _Edition | None = None
        self._coming: _Edition | None = None  # made ahead at the moment
        self._renewal: asyncio.Task[None] | None = None
        self._outages = OnceLog(log, logging.ERROR)  # by page

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
            edition = await self._edition(self._max_age_s)
        except NoSampleYetError as error:
            raise ApiError(500, "InternalError", str(error)) from error
        name = "summary of cpu and memory" if only_cpu_and_memory else "summary"
        return await self._body(name, make, edition, "application/json", accept_encoding)

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
            edition = await self._edition(max_age_s)
            body = await self._body(name, make, edition, content_type, encoding)
        except Exception as error:  # the page itself says that there is nothing to scrape
            # With a trace if it is a defect.
            defect = None if isinstance(error, NoSampleYetError) else error
            self._outages.failed(
                "the %s page shows no statistics: %s", name, error, subject=name, error=defect
            )
            return Body(make(None, None, _at_once), content_type)
        self._outages.recovered(subject=name)
        return body

    async def _body(
        self, name: str, make: Make, edition: _Edition, content_type: str, accept_encoding: str
    ) -> Body:
        packed = negotiation.wants_gzip(accept_encoding)
        key = (name, content_type == negotiation.OPENMETRICS_TYPE, packed)
        edition.asked[key] = make
        page = edition.pages.get(key) or self._begin_page(edition, key, make, _at_once)
        return Body(await asyncio.shield(page), content_type, "gzip" if packed else "")

    def _begin_page(
        self, edition: _Edition, key: Key, make: Make, give_way: GiveWay
    ) -> asyncio.Task[Data]:
        sample, base = edition.sample, edition.base
        work = asyncio.to_thread(_make, lambda: make(sample, base, give_way), key[2])
        edition.pages[key] = loops.spawn(work, name=f"page {key[0]}")
        return edition.pages[key]

    async def _edition(self, max_age_s: float) -> _Edition:
        """A young one; an old one only while a reading hangs."""
        edition = self._shown
        if edition is None or _age_s(edition) > max_age_s:
            edition = self._shown = self._edition_of(await self._sampler.fresh(max_age_s))
        if _age_s(edition) > max_age_s * _RENEW_AT:
            self._begin(self._renew, "renew statistics")
        return edition

    def _edition_of(self, sample: Sample) -> _Edition:
        for edition in (self._shown, self._coming):
            if edition is not None and edition.sample is sample:
                return edition
        return _Edition(sample, self._sampler.base_of(sample), _loop_s() - self._sampler.age_s())

    async def step(self) -> None:
        """The sampling loop's step: its reading, and the pages of it for those who keep asking."""
        await self.sending.wait_idle(within_s=_GIVE_WAY_S)
        await self._sampler.step()
        self._begin(self._make_ahead, "pages of the sample")

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        if self._renewal is None or self._renewal.done():
            self._renewal = loops.spawn(work(), name=name)

    async def _renew(self) -> None:
        """The next sample, and its pages for those who asked for the last one's."""
        await self.sending.wait_idle(within_s=_GIVE_WAY_S)
        try:
            await self._sampler.sample()
        except Exception:
            log.debug("renewing the statistics failed; the next reader meets it", exc_info=True)
            return
        await self._make_ahead()

    async def _make_ahead(self) -> None:
        """An edition of the latest sample, shown when it has what readers want at the moment."""
        sample, shown = self._sampler.latest, self._shown
        if sample is None:
            return
        edition = self._coming = self._edition_of(sample)
        give_way = self.sending.thread_pause(_GIVE_WAY_S)
        if shown is not None and _age_s(shown) <= 2 * self._max_age_s:
            for key, make in tuple(shown.asked.items()):
                await self.sending.wait_idle(within_s=_GIVE_WAY_S)
                if key not in edition.pages:
                    await asyncio.wait([self._begin_page(edition, key, make, give_way)])
        self._shown, self._coming = edition, None


def _age_s(edition: _Edition) -> float:
    return _loop_s() - edition.begun_s


def _loop_s() -> float:
    return asyncio.get_running_loop().time()


def _at_once() -> None:
    """Gives way to nobody: somebody waits."""


def _make(make: Callable[[], Data], wants_gzip: bool) -> Data:
    data = make()
    return gzip.compress(data, _GZIP_LEVEL) if wants_gzip else data
