"""The three statistics pages as bytes, rendered once per sample for all readers.

Rendering runs in worker threads, as a big node's page would block the event loop for too long. The
resource page, which autoscalers request from every node all the time, shows the sampling loop's
last reading with its stamps, as the reference agent's does. When no sample can be taken, the
metrics pages report that; the summary alone is an error then.
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

RESOURCE_MAX_AGE_S = 2 * INTERVAL_S  # older only if the loop is slower, or late
RENEW_AT = 0.6  # of the maximal age: from then on a reader starts the next sample
MAX_PAUSE_S = 0.1  # for responses in flight; three pauses and the work itself fit in the rest
_GZIP_LEVEL = 1  # 12 times smaller; level 6 makes it 14 times at three times the cost

Pause = Callable[[], None]
Render = Callable[[Sample | None, Sample | None, Pause], Data]
Key = tuple[str, bool, bool]


@dataclass(frozen=True, slots=True)
class Body:
    """The body of a response; `encoding` is gzip or empty."""

    data: Data
    content_type: str
    encoding: str = ""


def body_of(data: Data, content_type: str, accept_encoding: str) -> Body:
    """A page, compressed if the client accepts that."""
    if negotiation.wants_gzip(accept_encoding):
        return Body(gzip.compress(data, _GZIP_LEVEL), content_type, "gzip")
    return Body(data, content_type)


# While requests keep coming, the next sample is taken and the pages in demand are rendered before
# the current ones are too old, and then replace them at once: no request waits for a reading.
# Rendering ahead pauses for responses in flight, as both compete for few cores. p95 without it is
# 2.6 times as long at 330 containers and 1.9 at 1,000, without the pauses 1.1 and 1.4 (alternating
# in one run of `BENCH_PARTS=serving python -m tools.bench statistics`).
@dataclass(slots=True, eq=False)
class _PageSet:
    """The pages of one sample, and those that were `requested`; `begun_s` is the sample's start."""

    sample: Sample
    base: Sample | None
    begun_s: float
    pages: dict[Key, asyncio.Task[Data]] = field(default_factory=dict)
    requested: dict[Key, Render] = field(default_factory=dict)


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
        now_s: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
    ) -> None:
        self.sending = Sending()  # the responses with these pages
        self._sampler = sampler
        self._node_name = node_name
        self._psi = psi
        self._host = host
        self._max_age_s = max_age_s
        self._now_s = now_s
        self._current: _PageSet | None = None
        self._upcoming: _PageSet | None = None  # being rendered ahead
        self._renewal: asyncio.Task[None] | None = None
        self._outages = OnceLog(log, logging.ERROR)  # by page

    async def summary(
        self, *, only_cpu_and_memory: bool = False, accept_encoding: str = ""
    ) -> Body:
        """/stats/summary; ApiError 500 before the first sample, other errors are raised."""

        def render(sample: Sample | None, base: Sample | None, _: Pause) -> bytes:
            if sample is None:
                raise RuntimeError("there is no sample for the summary")
            summary = build_summary(
                sample,
                base,
                node_name=self._node_name,
                only_cpu_and_memory=only_cpu_and_memory,
                psi=self._psi,
            )
            return orjson.dumps(summary)

        try:
            page_set = await self._current_pages(self._max_age_s)
        except NoSampleYetError as error:
            raise ApiError(500, "InternalError", str(error)) from error
        name = "summary of cpu and memory" if only_cpu_and_memory else "summary"
        return await self._body(name, render, page_set, "application/json", accept_encoding)

    async def resource(self, *, accept: str = "", accept_encoding: str = "") -> Body:
        """/metrics/resource."""
        openmetrics = negotiation.wants_openmetrics(accept)

        def render(sample: Sample | None, _: Sample | None, __: Pause) -> Data:
            return resource.render_resource_metrics(sample, openmetrics=openmetrics)

        max_age_s = max(RESOURCE_MAX_AGE_S, self._max_age_s)
        return await self._metrics_page("resource", render, openmetrics, accept_encoding, max_age_s)

    async def containers(self, *, accept: str = "", accept_encoding: str = "") -> Body:
        """/metrics/containerstats."""
        openmetrics = negotiation.wants_openmetrics(accept)

        def render(sample: Sample | None, _: Sample | None, pause: Pause) -> Data:
            return containerstats.render_container_metrics(
                sample, openmetrics=openmetrics, psi=self._psi, host=self._host, pause=pause
            )

        return await self._metrics_page(
            "containers", render, openmetrics, accept_encoding, self._max_age_s
        )

    async def _metrics_page(
        self, name: str, render: Render, openmetrics: bool, encoding: str, max_age_s: float
    ) -> Body:
        content_type = negotiation.OPENMETRICS_TYPE if openmetrics else negotiation.TEXT_TYPE
        try:
            page_set = await self._current_pages(max_age_s)
            body = await self._body(name, render, page_set, content_type, encoding)
        except Exception as error:  # the page itself reports the failure
            # With a trace if it is a defect.
            defect = None if isinstance(error, NoSampleYetError) else error
            self._outages.failed(
                "the %s page shows no statistics: %s", name, error, subject=name, error=defect
            )
            return Body(render(None, None, no_pause), content_type)
        self._outages.recovered(subject=name)
        return body

    async def _body(
        self, name: str, render: Render, page_set: _PageSet, content_type: str, accept_encoding: str
    ) -> Body:
        compressed = negotiation.wants_gzip(accept_encoding)
        key = (name, content_type == negotiation.OPENMETRICS_TYPE, compressed)
        page_set.requested[key] = render
        page = page_set.pages.get(key) or self._start_page(page_set, key, render, no_pause)
        return Body(await asyncio.shield(page), content_type, "gzip" if compressed else "")

    def _start_page(
        self, page_set: _PageSet, key: Key, render: Render, pause: Pause
    ) -> asyncio.Task[Data]:
        sample, base = page_set.sample, page_set.base
        work = asyncio.to_thread(_render, lambda: render(sample, base, pause), key[2])
        page_set.pages[key] = loops.spawn(work, name=f"page {key[0]}")
        return page_set.pages[key]

    async def _current_pages(self, max_age_s: float) -> _PageSet:
        """Pages not older than `max_age_s`; older ones only while a reading hangs."""
        page_set = self._current
        if page_set is None or self._age_s(page_set) > max_age_s:
            page_set = self._current = self._page_set_of(await self._sampler.fresh(max_age_s))
        if self._age_s(page_set) > max_age_s * RENEW_AT:
            self._start(self._renew, "renew statistics")
        return page_set

    def _page_set_of(self, sample: Sample) -> _PageSet:
        for page_set in (self._current, self._upcoming):
            if page_set is not None and page_set.sample is sample:
                return page_set
        return _PageSet(
            sample, self._sampler.base_of(sample), self._now_s() - self._sampler.age_s()
        )

    def _age_s(self, page_set: _PageSet) -> float:
        return self._now_s() - page_set.begun_s

    async def step(self) -> None:
        """The sampling loop's step: take a sample, and render the pages that are in demand."""
        await self.sending.wait_idle(within_s=MAX_PAUSE_S)
        await self._sampler.step()
        self._start(self._render_ahead, "pages of the sample")

    def _start(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        if self._renewal is None or self._renewal.done():
            self._renewal = loops.spawn(work(), name=name)

    async def _renew(self) -> None:
        """Take the next sample, and render the pages that are in demand."""
        await self.sending.wait_idle(within_s=MAX_PAUSE_S)
        try:
            await self._sampler.sample()
        except Exception:
            log.debug("renewing the statistics failed; the next reader will retry", exc_info=True)
            return
        await self._render_ahead()

    async def _render_ahead(self) -> None:
        """Render the pages in demand for the latest sample, then make them current."""
        sample, current = self._sampler.latest, self._current
        if sample is None:
            return
        page_set = self._upcoming = self._page_set_of(sample)
        pause = self.sending.thread_pause(MAX_PAUSE_S)
        if current is not None and self._age_s(current) <= 2 * self._max_age_s:
            for key, render in tuple(current.requested.items()):
                await self.sending.wait_idle(within_s=MAX_PAUSE_S)
                if key not in page_set.pages:
                    await asyncio.wait([self._start_page(page_set, key, render, pause)])
        self._current, self._upcoming = page_set, None


def no_pause() -> None:
    """For a page that a reader waits for."""


def _render(render: Callable[[], Data], wants_gzip: bool) -> Data:
    data = render()
    return gzip.compress(data, _GZIP_LEVEL) if wants_gzip else data
