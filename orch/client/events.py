"""Events: what happened to an object, told to whoever asks the API server about that object.

`note` never waits and never fails; `run` posts in the background. The same news again within the
hour raises the count of the first event instead of making another. Events are best effort: when
the server cannot be reached they are dropped, oldest first, and counted; the log says when that
begins and when it is over. One that the server refuses for itself is counted alone.

The events a program could not tell, on its metrics page.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from orch.client.resources import ApiClient
from orch.client.transport import TransportError
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.component.process.once_log import OnceLog
from orch.wire import names, times
from orch.wire.errors import ApiError
from orch.wire.records.core import Event, EventSource, ObjectReference
from orch.wire.records.meta import ApiObject, ObjectMeta

log = logging.getLogger(__name__)

_WAITING_LIMIT = 1000
_REMEMBERED = 4096
_REPEAT_WITHIN_S = 3600.0
_NAME_LIMIT = 253 - 17  # room for the number that makes the event's name its own


@dataclass(frozen=True, slots=True)
class News:
    """One thing that happened; equal ones are counted together. `type` is Normal or Warning."""

    uid: str
    kind: str
    api_version: str
    namespace: str
    name: str
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class _Posted:
    """What is kept of an event at the server: thousands are remembered."""

    namespace: str
    name: str
    count: int
    at_s: float


class EventRecorder:
    """`component` and `host` are named as the source; `dropped` counts what was never told."""

    def __init__(
        self, client: ApiClient | None, component: str, *, host: str = "", now: Now = clock.utc_now
    ) -> None:
        self.dropped = 0
        self._client = client
        self._source = EventSource(component=component, host=host or None)
        self._now = now
        self._last_number = 0
        self._waiting: collections.deque[News] = collections.deque()
        self._arrived = asyncio.Event()
        self._reached = 0  # what `dropped` was when the server last took an event
        self._outage = OnceLog(log)
        self._posted: collections.OrderedDict[News, _Posted] = collections.OrderedDict()

    def note(self, obj: ApiObject, type: str, reason: str, message: str) -> None:  # noqa: A002
        """Something happened to `obj`; `type` is Normal or Warning."""
        meta = obj.metadata
        self._add(
            News(
                uid=meta.uid or "",
                kind=obj.kind,
                api_version=obj.apiVersion,
                namespace=meta.namespace or "",
                name=meta.name,
                type=type,
                reason=reason,
                message=message,
            )
        )

    def _add(self, news: News) -> None:
        if self._client is None:
            return
        if len(self._waiting) >= _WAITING_LIMIT:
            self._waiting.popleft()
            self._dropping(f"{_WAITING_LIMIT} wait already")
            self.dropped += 1
        self._waiting.append(news)
        self._arrived.set()

    async def run(self) -> None:
        """Post what was noted, for ever; without a client, only wait."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                news = self._waiting.popleft()
                try:
                    await self._post(news)
                except (ApiError, TransportError) as error:
                    if _is_outage(error):
                        self._dropping(str(error))
                    self.dropped += 1
                    log.debug("event %s of %s not told: %s", news.reason, news.name, error)
                else:
                    lost, self._reached = self.dropped - self._reached, self.dropped
                    text = "events are told to the API server again; %d were dropped"
                    self._outage.recovered(text, lost)

    def _dropping(self, why: str) -> None:
        self._outage.failed("events cannot be told to the API server and are dropped: %s", why)

    async def _post(self, news: News) -> None:
        if self._client is None:
            return
        now_s = asyncio.get_running_loop().time()
        known = self._posted.get(news)
        event = None
        if known and now_s - known.at_s < _REPEAT_WITHIN_S:
            event = await self._repeat(self._client, known)
        if event is None:
            event = await self._client.create(self._event(news))
        meta = event.metadata
        self._posted[news] = _Posted(meta.namespace or "", meta.name, event.count or 1, now_s)
        self._posted.move_to_end(news)
        if len(self._posted) > _REMEMBERED:
            self._posted.popitem(last=False)

    async def _repeat(self, client: ApiClient, known: _Posted) -> Event | None:
        """None when the first event is gone."""
        change = {"count": known.count + 1, "lastTimestamp": times.format_time(self._now())}
        try:
            return await client.patch(Event, known.name, change, namespace=known.namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _event(self, news: News) -> Event:
        now = self._now()
        namespace = news.namespace or names.DEFAULT_NAMESPACE
        self._last_number = max(self._last_number + 1, int(now.timestamp() * 1_000_000_000))
        return Event(
            metadata=ObjectMeta(
                name=f"{news.name[:_NAME_LIMIT]}.{self._last_number:x}", namespace=namespace
            ),
            involvedObject=ObjectReference(
                kind=news.kind,
                apiVersion=news.api_version,
                namespace=news.namespace or None,
                name=news.name,
                uid=news.uid or None,
            ),
            reason=news.reason,
            message=news.message,
            type=news.type,
            source=self._source,
            count=1,
            firstTimestamp=times.format_time(now),
            lastTimestamp=times.format_time(now),
            reportingComponent=self._source.component,
            reportingInstance=self._source.host,
        )


def _is_outage(error: ApiError | TransportError) -> bool:
    """Whether the next event will fare no better, as far as can be told."""
    return isinstance(error, TransportError) or error.code in (401, 429) or error.code >= 500


class EventMetrics(Collector):
    """`orch_events_dropped_total`; register it once."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "orch_events_dropped",
            "[ALPHA] Events that the API server was never told, or refused.",
            value=self._events.dropped,
        )
