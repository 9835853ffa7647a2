"""Keeps the store within its limits: before a checkpoint, soon after it, and every minute.

`bounds` decides, this removes and reports. When pinned archives alone exceed the limits, the node
reports disk pressure. On a full disk nothing can be recorded and removing helps: an archive is
removed even if its manifest cannot be updated, and a failed removal does not stop the others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from nodeagent.archives import bounds
from nodeagent.archives.archive_index import ArchiveIndex
from nodeagent.archives.bounds import Archive, Bounds, Removal
from nodeagent.archives.folder import StoreError
from nodeagent.archives.reports import CheckpointReports, StoreState
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.wire.records.pods import Pod

log = logging.getLogger(__name__)

INTERVAL_S = 60.0


class KnownPods(Protocol):
    def find(self, namespace: str, name: str) -> Pod | None: ...
    def live_uids(self) -> Collection[str] | None:
        """Of the pods assigned to this node; None while not all of them are known."""
        ...


@dataclass(frozen=True, slots=True)
class _Pruned:
    """`record_error` and `removal_error` are texts, "" when everything succeeded."""

    removed: tuple[Removal, ...]
    state: StoreState
    record_error: str
    removal_error: str


class Pruner:
    """Prunes every minute, and soon after `archive_created`."""

    def __init__(
        self,
        index: ArchiveIndex,
        limits: Bounds,
        pods: KnownPods,
        *,
        reports: CheckpointReports | None = None,
        now: Now = clock.utc_now,
    ) -> None:
        self.reports = reports or CheckpointReports()
        self.index = index
        self._limits = limits
        self._pods = pods
        self._now = now
        self._pruning = threading.Lock()
        self._new: set[str] = set()  # archives created since the last step, not to be removed
        self._outage = OnceLog(log, logging.ERROR)
        self._loop = Periodic("checkpoint store", self.step, interval_s=INTERVAL_S)

    async def run(self) -> None:
        await self._loop.run()

    def excess_bytes(self) -> int | None:
        """By how much the store exceeds its limits; None before the first pruning."""
        state = self.reports.counts.store
        return state.excess_bytes if state else None

    async def step(self) -> None:
        """Prune once; what fails is logged once, and retried by the next step."""
        protected = set(self._new)
        try:
            pruned = await self._prune()
            problem = "; ".join(filter(None, (pruned.removal_error, pruned.record_error)))
        except (StoreError, OSError) as error:
            problem = str(error)
        if problem:
            self._outage.failed("cannot keep the checkpoint store within its limits: %s", problem)
        else:
            self._outage.recovered()
        self._new -= protected

    async def make_room(self, new: Archive, need_bytes: int) -> None:
        """Make room for an archive like `new`, of estimated size.

        Creating it writes `need_bytes`. StoreError says what does not fit and how much is missing;
        then only archives that exceed the limits anyway are removed.
        """
        refused = await asyncio.to_thread(self._refusal, new, need_bytes)
        pruned = await self._prune(need_bytes=0 if refused else need_bytes)
        if problem := refused or pruned.removal_error:
            raise StoreError(problem)

    def archive_created(self, name: str) -> None:
        """Prune soon; the request that created the archive does not wait for it."""
        self._new.add(name)
        self._loop.wake()

    async def _prune(self, *, need_bytes: int = 0) -> _Pruned:
        live, before = self._pods.live_uids(), self.reports.counts.store
        pruned = await asyncio.to_thread(self._prune_now, live, set(self._new), need_bytes)
        self.reports.counts.store = state = pruned.state
        for removal in pruned.removed:
            self._report(removal)
        if state.excess_bytes and not (before and before.excess_bytes):
            log.warning(
                "pinned checkpoint archives exceed the store's limits by %d bytes: the node "
                "reports disk pressure until some are unpinned or moved away from %s",
                state.excess_bytes,
                self.index.path,
            )
        return pruned

    def _prune_now(
        self, live: Collection[str] | None, protected: Collection[str], need_bytes: int
    ) -> _Pruned:
        with self._pruning:
            now = self._now()
            archives, record_error = self._record_gone_pods(live, now)
            limits, space = self._limits, self.index.space()
            selected = bounds.select_removals(
                archives, limits, space, now, protected=protected, need_bytes=need_bytes
            )
            removed, removal_error = self._remove(selected)
            return _Pruned(removed, self._state(), record_error, removal_error)

    def _record_gone_pods(
        self, live: Collection[str] | None, now: datetime
    ) -> tuple[tuple[Archive, ...], str]:
        """The archives, updated with which pods exist, and why that cannot be recorded."""
        found = self.index.archives()
        if live is None:
            return found, ""
        archives, problem = tuple(_updated(archive, live, now) for archive in found), ""
        for before, after in zip(found, archives, strict=True):
            if after.manifest and after is not before:
                try:
                    self.index.record_pod_gone(before, gone_since=after.manifest.gone_since)
                except OSError as error:
                    problem = f"cannot record that a pod is gone or back: {error.strerror}"
        return archives, problem

    def _remove(self, selected: Collection[Removal]) -> tuple[tuple[Removal, ...], str]:
        """The successful removals, and why another failed."""
        removed, problem = [], ""
        for removal in selected:
            try:
                self.index.remove(removal.archive)
            except OSError as error:
                problem = f"cannot remove {removal.archive.name}: {error.strerror}"
            else:
                removed.append(removal)
        return tuple(removed), problem

    def _state(self) -> StoreState:
        archives, space = self.index.archives(), self.index.space()
        return StoreState(
            archives=len(archives),
            pinned=sum(1 for archive in archives if archive.pinned),
            used_bytes=sum(archive.size_bytes for archive in archives),
            free_bytes=space.free_bytes,
            limit_bytes=self._limits.total.of(space.capacity_bytes),
            excess_bytes=bounds.excess_bytes(archives, self._limits, space),
        )

    def _refusal(self, new: Archive, need_bytes: int) -> str:
        """Why there would be no room even after all possible removals."""
        archives, space = self.index.archives(), self.index.space()
        gone = bounds.select_removals(
            archives, self._limits, space, self._now(), need_bytes=need_bytes
        )
        left, freed = bounds.apply_removals(archives, space, gone)
        return bounds.refusal(left, self._limits, freed, new, need_bytes=need_bytes)

    def _report(self, removal: Removal) -> None:
        archive, manifest = removal.archive, removal.archive.manifest
        log.info("removed the checkpoint archive %s: %s", archive.name, removal.why)
        pod = self._pods.find(manifest.namespace, manifest.pod) if manifest else None
        same = pod and manifest and pod.metadata.uid == manifest.uid
        self.reports.removed(pod if same else None, removal)


def _updated(archive: Archive, live: Collection[str], now: datetime) -> Archive:
    """The archive with whether its pod is gone; the same object when nothing changed."""
    manifest = archive.manifest
    if not manifest or not manifest.uid or (manifest.uid in live) != bool(manifest.gone_since):
        return archive
    since = None if manifest.uid in live else now
    return replace(archive, manifest=manifest.with_gone_since(since))
