"""The pod lifecycle event generator: reads the runtime's state of all pods into the registry.

It lists pods when the runtime reports an event, or every second where events are unsupported or
unreliable, and reads details only of what changed. After an action, workers refresh the affected
ids alone, so an action costs no listing. A slow answer about a pod delays that pod only. Sandboxes
of other nodes' agents on the same runtime are ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from nodeagent.pods import counts as pods_counts
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.observed import Detail, Row, observed_pod, reflects, row_of
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.relist import Due, EventStream, RelistTimer
from nodeagent.runtime.base import (
    Container,
    ContainerEvent,
    ContainerRuntime,
    EventKind,
    RuntimeCallError,
    RuntimeNotFound,
    Sandbox,
    SandboxDetail,
)
from orch.component.process import clock, loops
from orch.component.process.once_log import OnceLog
from orch.wire import names

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
EVENTED_INTERVAL_S = 10.0  # while the runtime streams events; finds what they missed
LISTED_WITHIN_S = 180.0  # else the node is not Ready: pkg/kubelet/pleg/generic.go


class Pleg:
    """`error` is why the latest listing failed; "" when it succeeded."""

    def __init__(
        self, runtime: ContainerRuntime, registry: PodRegistry, counts: PodCounts, node_name: str
    ) -> None:
        self.error = ""
        self.last_success_s: float | None = None  # loop time
        self._started_s: float | None = None  # loop time of `run`
        self._runtime = runtime
        self._registry = registry
        self._counts = counts
        self._node_name = node_name
        self._timer = RelistTimer()
        self._stream = EventStream(
            runtime, on_event=self._note_event, on_change=self._timer.request
        )
        self._events: dict[str, EventKind] = {}  # by id, since the last listing
        self._details: dict[str, dict[str, Detail]] = {}  # by uid, then id
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._skipped: set[str] = set()  # listed while their details were being read
        self._relists_begun = 0
        self._last_good_relist = 0  # by number
        self._updated = asyncio.Event()
        # Listing takes a while, and workers refresh details meanwhile. Every merge of a detail
        # advances the clock; rows of a listing that began before that merge are out of date.
        self._clock = 0
        self._merged: dict[str, int] = {}  # id → clock of the last merge of its detail
        self._foreign = 0
        self._outage = OnceLog(log)
        # The rows of the last listing by id, as long as the cached details agree with them.
        self._in_sync: dict[str, Row] | None = None
        self._sandbox_of: dict[str, str] = {}  # container id → sandbox; details lack it

    def problems(self) -> tuple[str, ...]:
        """Why the node is not Ready: the state of its pods is unknown."""
        last_s = self._started_s if self.last_success_s is None else self.last_success_s
        if last_s is None or asyncio.get_running_loop().time() - last_s <= LISTED_WITHIN_S:
            return ()
        cause = f": {self.error}" if self.error else ""
        text = f"the container runtime has not listed its pods for over {LISTED_WITHIN_S:.0f} s"
        return (f"PLEG is not healthy: {text}{cause}",)

    async def run(self) -> None:
        """List forever; an unavailable runtime is retried."""
        self._started_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stream.run())
                group.create_task(self._relist_loop())
        finally:
            await loops.cancel(*self._fetching.values())

    @property
    def has_listed(self) -> bool:
        """Whether the runtime has ever answered this agent."""
        return self._last_good_relist > 0

    async def after_listing(self, uid: str) -> None:
        """Wait for a successful listing that begins after this call, with this pod's details."""
        wanted = self._relists_begun + 1
        self._timer.request()
        while self._last_good_relist < wanted or not self._registry.settled(uid):
            await self._updated.wait()

    async def relist(self) -> None:
        """List once; a runtime error is stored in `error` and logged once per outage."""
        self._relists_begun += 1
        number, since = self._relists_begun, self._clock
        began_s = asyncio.get_running_loop().time()
        try:
            sandboxes = await self._runtime.list_sandboxes()
            containers = await self._runtime.list_containers()
        except RuntimeCallError as error:
            self._failed(error)
            return
        self._succeeded(began_s)
        listed: list[Row] = [*sandboxes, *containers]
        if not self._is_unchanged(listed):
            rows = self._group(listed)
            for uid in {*rows, *self._details}:
                self._compare(uid, rows.get(uid, {}), since)
            is_quiet = not self._fetching and self._registry.all_read and self._clock == since
            self._in_sync = {row.id: row for row in listed} if is_quiet else None
        self._merged = {k: clock for k, clock in self._merged.items() if clock > since}
        self._last_good_relist = number
        self._registry.set_listed()
        self._notify_waiters()

    async def refresh(
        self,
        uid: str,
        *,
        sandboxes: Iterable[str] = (),
        containers: Iterable[str] = (),
        created_in: str = "",
    ) -> None:
        """Read these ids again and drop those that no longer exist. RuntimeCallError.

        `created_in` is the sandbox of containers just created, which no listing has shown yet.
        """
        for container_id in containers if created_in else ():
            self._sandbox_of[container_id] = created_in
            self._mark_merged(container_id)
        for sandbox_id in sandboxes:
            await self._read(uid, sandbox_id, self._runtime.sandbox_detail)
        for container_id in containers:
            await self._read(uid, container_id, self._runtime.container_detail)
        self._publish(uid)

    def forget(self, uid: str, *ids: str) -> None:
        """Drop what was just removed, without asking the runtime."""
        for row_id in ids:
            self._mark_merged(row_id)
            self._sandbox_of.pop(row_id, None)
            self._cached(uid).pop(row_id, None)
        self._publish(uid)

    async def _relist_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            self._events.clear()
            await self.relist()
            reliable = self._stream.healthy and not self.error and self._registry.all_read
            until_s = began_s + (EVENTED_INTERVAL_S if reliable else INTERVAL_S)
            took_s = loop.time() - began_s
            while await self._timer.wait(until_s, took_s=took_s) is Due.HINTED:
                if self._has_changes():
                    break
                self._counts.discarded_events += len(self._events)
                self._events.clear()

    def _note_event(self, event: ContainerEvent) -> None:
        self._events[event.id] = event.kind
        self._timer.hint()

    def _has_changes(self) -> bool:
        """Whether any event reports a state that the workers' refreshes have not shown already."""
        return any(not reflects(self._row(row_id), kind) for row_id, kind in self._events.items())

    def _row(self, row_id: str) -> Row | None:
        found = (cached[row_id] for cached in self._details.values() if row_id in cached)
        return next(map(row_of, found), None)

    def _is_unchanged(self, rows: Sequence[Row]) -> bool:
        """Whether these rows, in any order, agree with the cached details."""
        known = self._in_sync
        if known is None or len(known) != len(rows):
            return False
        return all((before := known.get(row.id)) is row or before == row for row in rows)

    def _compare(self, uid: str, listed: dict[str, Row], since: int) -> None:
        cached = self._cached(uid)
        gone = [
            row_id
            for row_id in cached
            if row_id not in listed and self._merged.get(row_id, 0) <= since
        ]
        for row_id in gone:
            del cached[row_id]
        if uid in self._fetching:
            self._skipped.add(uid)
            return
        changed = [
            row
            for row in listed.values()
            if self._merged.get(row.id, 0) <= since
            and (row.id not in cached or row_of(cached[row.id]).state != row.state)
        ]
        if changed:
            sandboxes = [row.id for row in changed if isinstance(row, Sandbox)]
            containers = [row.id for row in changed if isinstance(row, Container)]
            self._fetching[uid] = loops.spawn(
                self._fetch(uid, sandboxes, containers), name=f"observe {uid}"
            )
            self._registry.set_read(uid, read=False)
            return
        partly_read = not self._registry.is_read(uid)  # some details may not be published yet
        self._registry.set_read(uid)
        if gone or partly_read or not listed:  # a failed read may have left an empty record
            self._publish(uid)

    async def _fetch(self, uid: str, sandboxes: list[str], containers: list[str]) -> None:
        try:
            await self.refresh(uid, sandboxes=sandboxes, containers=containers)
            self._registry.set_read(uid)
        except RuntimeCallError as error:
            log.debug("cannot read the details of pod %s, retrying: %s", uid, error)
        finally:
            self._fetching.pop(uid, None)
            if uid in self._skipped:  # it may have changed since
                self._skipped.discard(uid)
                self._timer.request()
            self._notify_waiters()

    async def _read(self, uid: str, row_id: str, read: Callable[[str], Awaitable[Detail]]) -> None:
        since = self._clock
        try:
            detail = await read(row_id)
        except RuntimeNotFound:
            self._in_sync = None
            self._cached(uid).pop(row_id, None)
            return
        if self._merged.get(row_id, 0) <= since:
            self._mark_merged(row_id)
            self._cached(uid)[row_id] = self._with_sandbox(detail)

    def _with_sandbox(self, detail: Detail) -> Detail:
        if isinstance(detail, SandboxDetail):
            return detail
        row = detail.container
        sandbox_id = row.sandbox_id or self._sandbox_of.get(row.id, "")
        return replace(detail, container=replace(row, sandbox_id=sandbox_id))

    def _group(self, listed: Sequence[Row]) -> dict[str, dict[str, Row]]:
        """This node's rows by uid and id."""
        rows: dict[str, dict[str, Row]] = {}
        foreign = 0
        # Containers that are neither listed below nor merged since the last listing are gone.
        self._sandbox_of = {k: v for k, v in self._sandbox_of.items() if k in self._merged}
        for row in listed:
            if uid := self._uid(row):
                rows.setdefault(uid, {})[row.id] = row
                if isinstance(row, Container):
                    self._sandbox_of[row.id] = row.sandbox_id
            elif isinstance(row, Sandbox):
                foreign += 1
        if foreign > self._foreign:
            log.info("the runtime also has %d sandboxes of other nodes", foreign)
        self._foreign = foreign
        return rows

    def _uid(self, row: Row) -> str:
        """The uid of a row's pod; "" when the pod is not this node's."""
        if row.labels.get(names.RUNTIME_LABEL_NODE_NAME) != self._node_name:
            return ""
        return row.labels.get(names.RUNTIME_LABEL_POD_UID, "")

    def _cached(self, uid: str) -> dict[str, Detail]:
        return self._details.setdefault(uid, {})

    def _mark_merged(self, row_id: str) -> None:
        self._in_sync = None
        self._clock += 1
        self._merged[row_id] = self._clock

    def _publish(self, uid: str) -> None:
        view = observed_pod(uid, self._cached(uid).values())
        if view.empty:
            del self._details[uid]
        self._registry.set_view(view)

    def _failed(self, error: RuntimeCallError) -> None:
        text = "the container runtime does not answer; pods remain as they are: %s"
        self._outage.failed(text, error)
        self.error = str(error)

    def _succeeded(self, began_s: float) -> None:
        self._outage.recovered("the container runtime answers again")
        self.error = ""
        now_s = asyncio.get_running_loop().time()
        timings = self._counts.timings
        self._counts.listed_at_s = clock.utc_now().timestamp()
        timings.observe(pods_counts.RELIST, now_s - began_s)
        if self.last_success_s is not None:
            timings.observe(pods_counts.RELIST_INTERVAL, now_s - self.last_success_s)
        self.last_success_s = now_s

    def _notify_waiters(self) -> None:
        self._updated.set()
        self._updated = asyncio.Event()
