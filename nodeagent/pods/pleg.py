"""The pod lifecycle event generator: reads the runtime's state of all pods into the registry.

A cheap list when the runtime tells of something new, every second where it tells nothing or not
reliably, and details only of what changed. Workers that just did something ask for those ids alone
(`refresh`), so a step costs no listing. A slow answer about a pod holds up that pod only. Sandboxes
of other nodes' agents on the same runtime are left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from nodeagent.pods import counts as pods_counts
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.observed import Details, ObservedPod, Rows, observed_pod, shows
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.relist import Due, EventStream, RelistTimer
from nodeagent.runtime.base import (
    Container,
    ContainerDetail,
    ContainerEvent,
    ContainerRuntime,
    EventKind,
    RuntimeCallError,
    RuntimeNotFound,
    Sandbox,
)
from orch.component.process import clock, loops
from orch.component.process.once_log import OnceLog
from orch.wire import names

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
TOLD_INTERVAL_S = 10.0  # while the runtime tells of changes; finds what it failed to tell
LISTED_WITHIN_S = 180.0  # else the node is not Ready: pkg/kubelet/pleg/generic.go


class Pleg:
    """`error` is why the latest listing failed; "" when it did not."""

    def __init__(
        self, runtime: ContainerRuntime, registry: PodRegistry, counts: PodCounts, node_name: str
    ) -> None:
        self.error = ""
        self.last_success_s: float | None = None  # loop time
        self._began_s: float | None = None  # loop time of `run`
        self._runtime = runtime
        self._registry = registry
        self._counts = counts
        self._node_name = node_name
        self._timer = RelistTimer()
        self._stream = EventStream(runtime, on_event=self._note, on_turn=self._timer.ask)
        self._told: dict[str, EventKind] = {}  # since the last listing
        self._details: dict[str, Details] = {}
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._passed_over: set[str] = set()  # listed while their details were being read
        self._began = 0  # listings
        self._ended = 0  # the last good listing, by its number
        self._turned = asyncio.Event()
        self._clock = 0
        self._merged: dict[str, int] = {}  # id → clock when its detail was last taken over
        self._foreign = 0
        self._outage = OnceLog(log)
        # The rows of the last listing by id, while what is held is what it said.
        self._agreed: dict[str, Sandbox | Container] | None = None
        self._sandbox_of: dict[str, str] = {}  # container id → sandbox; its detail does not say

    def problems(self) -> tuple[str, ...]:
        """Why the node is not Ready: nobody knows any longer what runs here."""
        last_s = self._began_s if self.last_success_s is None else self.last_success_s
        if last_s is None or asyncio.get_running_loop().time() - last_s <= LISTED_WITHIN_S:
            return ()
        cause = f": {self.error}" if self.error else ""
        text = f"the container runtime has not listed its pods for over {LISTED_WITHIN_S:.0f} s"
        return (f"PLEG is not healthy: {text}{cause}",)

    async def run(self) -> None:
        """List for ever; a runtime that is away is waited for."""
        self._began_s = asyncio.get_running_loop().time()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stream.run())
                group.create_task(self._list_for_ever())
        finally:
            await loops.cancel(*self._fetching.values())

    async def after_listing(self, uid: str) -> None:
        """Wait for a good listing that begins from now on, with the details of this pod."""
        wanted = self._began + 1
        self._timer.ask()
        while self._ended < wanted or not self._registry.settled(uid):
            await self._turned.wait()

    async def relist(self) -> None:
        """List once; an error of the runtime is kept in `error`, and logged when it changes."""
        self._began += 1
        number, since = self._began, self._clock
        began_s = asyncio.get_running_loop().time()
        try:
            sandboxes = await self._runtime.list_sandboxes()
            containers = await self._runtime.list_containers()
        except RuntimeCallError as error:
            self._failed(error)
            return
        self._succeeded(began_s)
        listed: list[Sandbox | Container] = [*sandboxes, *containers]
        if not self._says_nothing_new(listed):
            rows = self._group(sandboxes, containers)
            for uid in {*rows, *self._details}:
                self._compare(uid, rows.get(uid) or Rows(), since)
            is_quiet = not self._fetching and not self._registry.unread and self._clock == since
            self._agreed = {row.id: row for row in listed} if is_quiet else None
        self._merged = {k: clock for k, clock in self._merged.items() if clock > since}
        self._ended = number
        self._registry.listed = True
        self._turn()

    async def refresh(
        self,
        uid: str,
        *,
        sandboxes: Iterable[str] = (),
        containers: Iterable[str] = (),
        made_in: str = "",
    ) -> None:
        """Read these ids anew; those that no longer exist are dropped. RuntimeCallError.

        `made_in` is the sandbox of containers that were just made, and that no list has shown yet.
        """
        for container_id in containers if made_in else ():
            self._sandbox_of[container_id] = made_in
            self._merge(container_id)
        for sandbox_id in sandboxes:
            await self._read_sandbox(uid, sandbox_id)
        for container_id in containers:
            await self._read_container(uid, container_id)
        self._publish(uid)

    def forget(self, uid: str, *ids: str) -> None:
        """Drop what was just removed, without asking."""
        for one in ids:
            self._merge(one)
            self._sandbox_of.pop(one, None)
        self._held(uid).drop(ids)
        self._publish(uid)

    async def _list_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            self._told.clear()
            await self.relist()
            trusting = self._stream.healthy and not self.error and not self._registry.unread
            until_s = began_s + (TOLD_INTERVAL_S if trusting else INTERVAL_S)
            took_s = loop.time() - began_s
            while await self._timer.wait(until_s, took_s=took_s) is Due.HINTED:
                if self._is_news():
                    break
                self._counts.discarded_events += len(self._told)
                self._told.clear()

    def _note(self, event: ContainerEvent) -> None:
        self._told[event.id] = event.kind
        self._timer.hint()

    def _is_news(self) -> bool:
        """Whether something was told that the workers' own readings have not shown already."""
        return any(not shows(self._row(one), kind) for one, kind in self._told.items())

    def _row(self, one: str) -> Sandbox | Container | None:
        rows = (details.row(one) for details in self._details.values())
        return next((row for row in rows if row is not None), None)

    def _says_nothing_new(self, rows: Sequence[Sandbox | Container]) -> bool:
        """Whether these are the rows that agree with what is held, in whatever order."""
        known = self._agreed
        if known is None or len(known) != len(rows):
            return False
        return all((held := known.get(row.id)) is row or held == row for row in rows)

    def _compare(self, uid: str, rows: Rows, since: int) -> None:
        held = self._held(uid)
        listed = {*rows.sandboxes, *rows.containers}
        gone = [
            one
            for one in (*held.sandboxes, *held.containers)
            if one not in listed and self._merged.get(one, 0) <= since
        ]
        held.drop(gone)
        changed_sandboxes = [
            one
            for one, row in rows.sandboxes.items()
            if self._merged.get(one, 0) <= since
            and (one not in held.sandboxes or held.sandboxes[one].sandbox.state != row.state)
        ]
        changed_containers = [
            one
            for one, row in rows.containers.items()
            if self._merged.get(one, 0) <= since
            and (one not in held.containers or held.containers[one].container.state != row.state)
        ]
        if uid in self._fetching:
            self._passed_over.add(uid)
            return
        if changed_sandboxes or changed_containers:
            task = loops.spawn(
                self._fetch(uid, changed_sandboxes, changed_containers), name=f"observe {uid}"
            )
            self._fetching[uid] = task
            self._registry.unread.add(uid)
            return
        half_read = (
            uid in self._registry.unread
        )  # some details of it may be held that nobody has seen
        self._registry.unread.discard(uid)
        if gone or half_read or not listed:  # an answer that failed may have left an empty record
            self._publish(uid)

    async def _fetch(self, uid: str, sandboxes: list[str], containers: list[str]) -> None:
        try:
            await self.refresh(uid, sandboxes=sandboxes, containers=containers)
            self._registry.unread.discard(uid)
        except RuntimeCallError as error:
            log.debug("details of pod %s cannot be read, trying again: %s", uid, error)
        finally:
            self._fetching.pop(uid, None)
            if uid in self._passed_over:  # it may have changed since
                self._passed_over.discard(uid)
                self._timer.ask()
            self._turn()

    async def _read_sandbox(self, uid: str, sandbox_id: str) -> None:
        since = self._clock
        try:
            detail = await self._runtime.sandbox_detail(sandbox_id)
        except RuntimeNotFound:
            self._drop(uid, sandbox_id)
            return
        if self._merged.get(sandbox_id, 0) <= since:
            self._merge(sandbox_id)
            self._held(uid).sandboxes[sandbox_id] = detail

    async def _read_container(self, uid: str, container_id: str) -> None:
        since = self._clock
        try:
            detail = await self._runtime.container_detail(container_id)
        except RuntimeNotFound:
            self._drop(uid, container_id)
            return
        if self._merged.get(container_id, 0) <= since:
            self._merge(container_id)
            self._held(uid).containers[container_id] = self._with_sandbox(detail)

    def _with_sandbox(self, detail: ContainerDetail) -> ContainerDetail:
        row = detail.container
        sandbox_id = row.sandbox_id or self._sandbox_of.get(row.id, "")
        return replace(detail, container=replace(row, sandbox_id=sandbox_id))

    def _group(
        self, sandboxes: Sequence[Sandbox], containers: Sequence[Container]
    ) -> dict[str, Rows]:
        rows: dict[str, Rows] = {}
        foreign = 0
        listed = {container.id for container in containers}
        for one in [known for known in self._sandbox_of if known not in listed]:
            if one not in self._merged:
                del self._sandbox_of[one]
        for sandbox in sandboxes:
            if uid := self._uid(sandbox):
                rows.setdefault(uid, Rows()).sandboxes[sandbox.id] = sandbox
            else:
                foreign += 1
        for container in containers:
            if uid := self._uid(container):
                rows.setdefault(uid, Rows()).containers[container.id] = container
                self._sandbox_of[container.id] = container.sandbox_id
        if foreign > self._foreign:
            log.info("the runtime also holds %d sandboxes that are not this node's", foreign)
        self._foreign = foreign
        return rows

    def _uid(self, row: Sandbox | Container) -> str:
        """The pod a row belongs to; "" when it is not a pod of this node."""
        if row.labels.get(names.RUNTIME_LABEL_NODE_NAME) != self._node_name:
            return ""
        return row.labels.get(names.RUNTIME_LABEL_POD_UID, "")

    def _held(self, uid: str) -> Details:
        return self._details.setdefault(uid, Details())

    def _drop(self, uid: str, one: str) -> None:
        self._agreed = None
        self._held(uid).drop((one,))

    def _merge(self, one: str) -> None:
        self._agreed = None
        self._clock += 1
        self._merged[one] = self._clock

    def _publish(self, uid: str) -> None:
        held = self._held(uid)
        view = observed_pod(uid, list(held.sandboxes.values()), list(held.containers.values()))
        if view.empty:
            self._details.pop(uid, None)
            view = ObservedPod(uid, "", "")
        self._registry.set_view(view)

    def _failed(self, error: RuntimeCallError) -> None:
        text = "the container runtime does not answer; pods stay as they are: %s"
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

    def _turn(self) -> None:
        """Let everyone who waits look again."""
        self._turned.set()
        self._turned = asyncio.Event()
