"""Events about objects, posted to the API server, and the metric of those that were dropped.

`note` never waits and never fails; `run` posts in the background. A repetition within an hour
increments the count of the first event instead of creating another. Events are best effort: when
the server is unreachable they are dropped, oldest first, and counted; the log has the start and the
end of that. An event that the server rejects for its content is only counted, and so are further
ones of an object that has too many: a pod chooses what its probes say, and how often.
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

_MAX_QUEUED = 1000
_MAX_REMEMBERED = 4096
_SHOWN = 4096  # characters of a message: it may quote what a user has chosen, of any length
_BURST = 200  # events of one object at once; the reference's recorder lets 25 pass
_REFILL_S = 3.0  # for another one
_REPEAT_WITHIN_S = 3600.0
_NAME_LIMIT = 253 - 17  # room for the number that makes the event's name unique


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """Something that happened; equal ones are counted together. `type` is Normal or Warning."""

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
    """What is remembered of an event at the server, kept small because there are thousands."""

    namespace: str
    name: str
    count: int
    at_s: float


class EventRecorder:
    """`component` and `host` are the events' source; `dropped` counts events never posted."""

    def __init__(
        self, client: ApiClient | None, component: str, *, host: str = "", now: Now = clock.utc_now
    ) -> None:
        self.dropped = 0
        self._client = client
        self._source = EventSource(component=component, host=host or None)
        self._now = now
        self._last_number = 0
        self._queue: collections.deque[_Occurrence] = collections.deque()
        self._arrived = asyncio.Event()
        self._dropped_before = 0  # `dropped` when an event was last posted
        self._outage = OnceLog(log)
        self._posted: collections.OrderedDict[_Occurrence, _Posted] = collections.OrderedDict()
        # By the object's uid: how many events it may have, at which time.
        self._allowed: collections.OrderedDict[str, tuple[float, float]] = collections.OrderedDict()

    def note(self, obj: ApiObject, type: str, reason: str, message: str) -> None:  # noqa: A002
        """Queue an event about `obj`; `type` is Normal or Warning."""
        if self._client is None:
            return
        if self._is_too_much(obj.metadata.uid or ""):
            self.dropped += 1
            return
        if len(self._queue) >= _MAX_QUEUED:
            self._queue.popleft()
            self._log_outage(f"{_MAX_QUEUED} are queued already")
            self.dropped += 1
        meta = obj.metadata
        about = (meta.uid or "", obj.kind, obj.apiVersion, meta.namespace or "", meta.name)
        self._queue.append(_Occurrence(*about, type=type, reason=reason, message=message[:_SHOWN]))
        self._arrived.set()

    def _is_too_much(self, uid: str) -> bool:
        now_s = self._now().timestamp()
        allowed, at_s = self._allowed.pop(uid, (_BURST, now_s))
        allowed = min(allowed + max(now_s - at_s, 0.0) / _REFILL_S, _BURST)
        self._allowed[uid] = max(allowed - 1, allowed % 1), now_s
        if len(self._allowed) > _MAX_REMEMBERED:
            self._allowed.popitem(last=False)
        return allowed < 1

    async def run(self) -> None:
        """Post queued events forever; without a client, only wait."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                occurrence = self._queue.popleft()
                try:
                    await self._post(occurrence)
                except (ApiError, TransportError) as error:
                    if _is_outage(error):
                        self._log_outage(str(error))
                    self.dropped += 1
                    log.debug(
                        "event %s of %s not posted: %s", occurrence.reason, occurrence.name, error
                    )
                else:
                    lost, self._dropped_before = self.dropped - self._dropped_before, self.dropped
                    text = "events are posted to the API server again; %d were dropped"
                    self._outage.recovered(text, lost)

    def _log_outage(self, why: str) -> None:
        self._outage.failed("events cannot be posted to the API server and are dropped: %s", why)

    async def _post(self, occurrence: _Occurrence) -> None:
        if self._client is None:
            return
        now_s = asyncio.get_running_loop().time()
        first = self._posted.get(occurrence)
        event = None
        if first and now_s - first.at_s < _REPEAT_WITHIN_S:
            event = await self._increment(self._client, first)
        if event is None:
            event = await self._client.create(self._event(occurrence))
        meta = event.metadata
        self._posted[occurrence] = _Posted(meta.namespace or "", meta.name, event.count or 1, now_s)
        self._posted.move_to_end(occurrence)
        if len(self._posted) > _MAX_REMEMBERED:
            self._posted.popitem(last=False)

    async def _increment(self, client: ApiClient, first: _Posted) -> Event | None:
        """None when the first event is gone."""
        change = {"count": first.count + 1, "lastTimestamp": times.format_time(self._now())}
        try:
            return await client.patch(Event, first.name, change, namespace=first.namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _event(self, occurrence: _Occurrence) -> Event:
        now = self._now()
        namespace = occurrence.namespace or names.DEFAULT_NAMESPACE
        self._last_number = max(self._last_number + 1, int(now.timestamp() * 1_000_000_000))
        return Event(
            metadata=ObjectMeta(
                name=f"{occurrence.name[:_NAME_LIMIT]}.{self._last_number:x}", namespace=namespace
            ),
            involvedObject=ObjectReference(
                kind=occurrence.kind,
                apiVersion=occurrence.api_version,
                namespace=occurrence.namespace or None,
                name=occurrence.name,
                uid=occurrence.uid or None,
            ),
            reason=occurrence.reason,
            message=occurrence.message,
            type=occurrence.type,
            source=self._source,
            count=1,
            firstTimestamp=times.format_time(now),
            lastTimestamp=times.format_time(now),
            reportingComponent=self._source.component,
            reportingInstance=self._source.host,
        )


def _is_outage(error: ApiError | TransportError) -> bool:
    """Whether the next event will probably fail as well."""
    return isinstance(error, TransportError) or error.code in (401, 429) or error.code >= 500


class EventMetrics(Collector):
    """`orch_events_dropped_total` of all recorders of a program; register it once."""

    def __init__(self, *events: EventRecorder) -> None:
        self._events = events

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "orch_events_dropped",
            "[ALPHA] Events that the API server was never told, or refused.",
            value=sum(events.dropped for events in self._events),
        )
