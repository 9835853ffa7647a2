"""A local copy of a collection, kept current by a list and a watch that resumes.

Retries after every failure of the server with growing delays, and after silence; the last known
objects stay readable meanwhile. Readers use `objects()`; `last_contact_s`, a health check and a
metric show how old that view may be.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orch.client.json_api import SILENCE_S
from orch.client.resources import ApiClient, WatchEvent
from orch.client.transport import TransportError
from orch.component.diagnostics.health import CheckFailed
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog
from orch.wire.errors import ApiError
from orch.wire.records import kinds
from orch.wire.records.meta import ApiObject

log = logging.getLogger(__name__)

T = TypeVar("T", bound=ApiObject)

FIRST_DELAY_S = 0.2
MAX_DELAY_S = 7.0
_SHORT_WATCH_S = 1.0  # a watch that ends sooner counts as a failure, or it would spin
_WATCH_S = 300
# The revision is forgotten, or the server has not come to it, perhaps because an older store was
# restored: nothing tells what changed since.
_DISCONTINUED = (410, 504)
_ASKED_FOR = 3  # of the objects that a list lacks
_DEAF_AFTER = 1.25  # times the silence that ends a watch: time to dial anew


class Informer(Generic[T]):
    """Objects of one kind, by `key` (`namespace/name`, or `name`).

    `on_change` is called in the loop after each change that was applied and after each list.
    `last_contact_s` is loop time of the last list, event or bookmark; None before the first. A
    watch without one for `silence_s` is given up, and resumed over a new connection. A list that
    lacks known objects is not believed while any of a few of them can still be read, so
    `field_selector` must be about what does not change.
    """

    def __init__(
        self,
        client: ApiClient,
        model: type[T],
        *,
        namespace: str = "",
        field_selector: str = "",
        on_change: Callable[[], object] = lambda: None,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.last_contact_s: float | None = None
        self.silence_s = silence_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began_s = 0.0
        self._client = client
        self._model = model
        self._namespace = namespace
        self._field_selector = field_selector
        self._on_change = on_change
        self.plural = kinds.resource_of(model).plural
        self._objects: dict[str, T] = {}
        self._revision = ""  # empty: a list is due
        self._synced = asyncio.Event()
        self._interrupted = False  # the watch broke, and has shown nothing since
        self._outage = OnceLog(log)
        self._discontinuity = OnceLog(log, logging.INFO)
        self._backoff = Backoff(FIRST_DELAY_S, 2.0, MAX_DELAY_S)

    @property
    def synced(self) -> bool:
        """Whether one list has succeeded; it stays true."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def objects(self) -> Mapping[str, T]:
        """A read-only view of what is known now; it changes with the next event."""
        return MappingProxyType(self._objects)

    def silent_s(self) -> float:
        """Seconds since the last contact, or since the start; 0 before that. For any thread."""
        if self._loop is None:
            return 0.0
        since_s = self._began_s if self.last_contact_s is None else self.last_contact_s
        return self._loop.time() - since_s

    def require_contact(self) -> None:
        """CheckFailed when no new objects of this kind may have been seen for too long."""
        if (silent_s := self.silent_s()) > self.silence_s * _DEAF_AFTER:
            text = f"the API server has not been heard about {self.plural} for {silent_s:.0f} s"
            raise CheckFailed(f"{text}: changes since then are not known here")

    async def run(self) -> None:
        """Run forever: list, watch, resume; a refusal or an outage is retried."""
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        while True:
            try:
                if not self._revision:
                    await self._list()
                await self._watch()
            except (ApiError, TransportError) as error:
                await self._recover(error)

    async def _list(self) -> None:
        result = await self._client.list(
            self._model, self._namespace, field_selector=self._field_selector
        )
        listed = {obj.key: obj for obj in result.items}
        await self._require_gone([obj for key, obj in self._objects.items() if key not in listed])
        self._objects = listed
        self._revision = result.resource_version
        self._synced.set()
        self._contact()
        if not self._interrupted:
            self._recovered()
        self._on_change()

    async def _require_gone(self, missing: Sequence[T]) -> None:
        """TransportError when any of a few of these can still be read."""
        for obj in random.sample(missing, min(len(missing), _ASKED_FOR)):
            if await self._is_there(obj):
                text = f"{len(missing)} known {self.plural} are no longer listed, but it still has"
                raise TransportError(f"the server contradicts itself: {text} {obj.key}")

    async def _is_there(self, obj: T) -> bool:
        """A refusal counts as "no": a node may not read what is not its own."""
        meta = obj.metadata
        try:
            found = await self._client.get(self._model, meta.name, meta.namespace or "")
        except ApiError as error:
            if error.code == 429 or error.code >= 500:
                raise
            return False
        return found.metadata.uid == meta.uid

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        events = self._client.watch(
            self._model,
            self._namespace,
            resource_version=self._revision,
            field_selector=self._field_selector,
            timeout_s=_WATCH_S,
            silence_s=self.silence_s,
        )
        async with contextlib.aclosing(events):
            async for event in events:
                self._contact()
                self._advance(event.object.metadata.resourceVersion or self._revision)
                self._interrupted = False
                self._recovered()
                self._apply(event)
        if loop.time() - began_s < _SHORT_WATCH_S:
            raise TransportError(f"the server ended the watch of {self.plural} at once")

    def _apply(self, event: WatchEvent[T]) -> None:
        if event.type == "BOOKMARK":
            return
        if event.type == "DELETED":
            self._objects.pop(event.object.key, None)
        else:
            self._objects[event.object.key] = event.object
        self._on_change()

    def _advance(self, revision: str) -> None:
        """ApiError 410 for a revision before the last one: the server's data was replaced."""
        before = self._revision
        numbers = revision.isdecimal() and before.isdecimal()
        if numbers and (len(revision), revision) < (len(before), before):
            raise ApiError(410, "Expired", f"the server went back from {before} to {revision}")
        self._revision = revision

    def _contact(self) -> None:
        self.last_contact_s = asyncio.get_running_loop().time()

    def _recovered(self) -> None:
        self._backoff.reset()
        self._discontinuity.recovered()
        self._outage.recovered("watching %s again: %d known", self.plural, len(self._objects))

    async def _recover(self, error: ApiError | TransportError) -> None:
        self._interrupted |= bool(self._revision)
        if self._revision and isinstance(error, ApiError) and error.code in _DISCONTINUED:
            text = "the watch of %s cannot go on where it was, listing again: %s"
            self._discontinuity.failed(text, self.plural, error, cause="discontinued")
            self._revision = ""
        else:
            self._outage.failed("cannot watch %s, retrying: %s", self.plural, error)
        delay_s = self._backoff.next()
        await asyncio.sleep(delay_s * (1 + random.random() * 0.2))  # noqa: S311


Informers = Callable[[], Iterable[Informer[Any]]]  # those that run now


class InformerMetrics(Collector):
    """`orch_informer_silence_seconds` by resource; register it once."""

    def __init__(self, informers: Informers) -> None:
        self._informers = informers

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "orch_informer_silence_seconds",
            "[ALPHA] Seconds since the API server was last heard about a resource.",
            labels=["resource"],
        )
        for informer in self._informers():
            family.add_metric([informer.plural], informer.silent_s())
        yield family
