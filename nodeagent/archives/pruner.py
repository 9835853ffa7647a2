"""Keeps the store within its bounds: before a checkpoint, soon after it, and every minute.

`bounds` decides; this does, and tells. What is pinned stays, and when the store is too large for
its file system because of that, the node reports disk pressure. On a disk that is full nothing can
be written down, and removing is what helps: an archive goes although that its pod is gone could not
be noted, and one that cannot be removed keeps no other.
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
from nodeagent.archives.archive_index import Shelf
from nodeagent.archives.bounds import Archive, Bounds, Removal
from nodeagent.archives.folder import StoreError
from nodeagent.archives.reports import Reports, StoreState
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
        """Of the pods that should be here; None while not all of them are known."""
        ...


@dataclass(frozen=True, slots=True)
class _Pruned:
    """What went, how the store is now; what could not be noted, and what not removed, and why."""

    removed: tuple[Removal, ...]
    state: StoreState
    not_noted: str
    not_removed: str


class Pruner:
    """Takes a step every minute, and soon after an archive was `made`."""

    def __init__(
        self,
        shelf: Shelf,
        limits: Bounds,
        pods: KnownPods,
        *,
        reports: Reports | None = None,
        now: Now = clock.utc_now,
    ) -> None:
        self.reports = reports or Reports()
        self.shelf = shelf
        self._limits = limits
        self._pods = pods
        self._now = now
        self._one_at_a_time = threading.Lock()
        self._new: set[str] = set()  # archives made since the last step: none of them goes
        self._outage = OnceLog(log, logging.ERROR)
        self._loop = Periodic("checkpoint store", self.step, interval_s=INTERVAL_S)

    async def run(self) -> None:
        await self._loop.run()

    def excess_bytes(self) -> int | None:
        """What the store may not hold, yet does; None until it was looked at."""
        state = self.reports.counts.store
        return state.excess_bytes if state else None

    async def step(self) -> None:
        """Look through the store once; what cannot be done is logged once, and retried."""
        kept = set(self._new)
        try:
            pruned = await self._prune()
            trouble = "; ".join(filter(None, (pruned.not_removed, pruned.not_noted)))
        except (StoreError, OSError) as error:
            trouble = str(error)
        if trouble:
            text = "the checkpoint store cannot be kept within its bounds: %s"
            self._outage.failed(text, trouble)
        else:
            self._outage.recovered()
        self._new -= kept

    async def make_room(self, new: Archive, need_bytes: int) -> None:
        """Make room for an archive like `new`, whose size is a guess.

        `need_bytes` are written meanwhile. StoreError says what there is no room for, and how much
        is missing; nothing is removed then but what has to go anyway.
        """
        refused = await asyncio.to_thread(self._refusal, new, need_bytes)
        pruned = await self._prune(need_bytes=0 if refused else need_bytes)
        if problem := refused or pruned.not_removed:
            raise StoreError(problem)

    def made(self, name: str) -> None:
        """An archive was made: older ones may have to go, for which its maker need not wait."""
        self._new.add(name)
        self._loop.wake()

    async def _prune(self, *, need_bytes: int = 0) -> _Pruned:
        live, before, kept = self._pods.live_uids(), self.reports.counts.store, set(self._new)
        pruned = await asyncio.to_thread(self._prune_now, live, kept, need_bytes)
        self.reports.counts.store = state = pruned.state
        for removal in pruned.removed:
            self._tell(removal)
        if state.excess_bytes and not (before and before.excess_bytes):
            log.warning(
                "checkpoint archives take %d bytes more than they may and are pinned: the node "
                "reports disk pressure until some are unpinned or moved away from %s",
                state.excess_bytes,
                self.shelf.path,
            )
        return pruned

    def _prune_now(
        self, live: Collection[str] | None, kept: Collection[str], need_bytes: int
    ) -> _Pruned:
        with self._one_at_a_time:
            now = self._now()
            archives, not_noted = self._noted(live, now)
            chosen = bounds.removals(
                archives, self._limits, self.shelf.space(), now, kept=kept, need_bytes=need_bytes
            )
            removed, not_removed = self._remove(chosen)
            return _Pruned(removed, self._state(), not_noted, not_removed)

    def _noted(
        self, live: Collection[str] | None, now: datetime
    ) -> tuple[tuple[Archive, ...], str]:
        """The archives with what is known of their pods now, and why that cannot be written."""
        found = self.shelf.archives()
        if live is None:
            return found, ""
        archives, problem = tuple(_seen(archive, live, now) for archive in found), ""
        for before, after in zip(found, archives, strict=True):
            if after.manifest and after is not before:
                try:
                    self.shelf.note_pod(before, gone_since=after.manifest.gone_since)
                except OSError as error:
                    problem = f"cannot note that a pod is gone or back: {error.strerror}"
        return archives, problem

    def _remove(self, chosen: Collection[Removal]) -> tuple[tuple[Removal, ...], str]:
        """Those that went, and why another did not."""
        removed, problem = [], ""
        for removal in chosen:
            try:
                self.shelf.remove(removal.archive)
            except OSError as error:
                problem = f"cannot remove {removal.archive.name}: {error.strerror}"
            else:
                removed.append(removal)
        return tuple(removed), problem

    def _state(self) -> StoreState:
        archives, space = self.shelf.archives(), self.shelf.space()
        return StoreState(
            archives=len(archives),
            pinned=sum(1 for archive in archives if archive.pinned),
            used_bytes=sum(archive.size_bytes for archive in archives),
            free_bytes=space.free_bytes,
            limit_bytes=self._limits.total.of(space.capacity_bytes),
            excess_bytes=bounds.excess_bytes(archives, self._limits, space),
        )

    def _refusal(self, new: Archive, need_bytes: int) -> str:
        """Why there would be no room even after everything that can go for it is gone."""
        archives, space = self.shelf.archives(), self.shelf.space()
        gone = bounds.removals(archives, self._limits, space, self._now(), need_bytes=need_bytes)
        left, freed = bounds.after(archives, space, gone)
        return bounds.refusal(left, self._limits, freed, new, need_bytes=need_bytes)

    def _tell(self, removal: Removal) -> None:
        archive, manifest = removal.archive, removal.archive.manifest
        log.info("removed the checkpoint archive %s: %s", archive.name, removal.why)
        pod = self._pods.find(manifest.namespace, manifest.pod) if manifest else None
        same = pod and manifest and pod.metadata.uid == manifest.uid
        self.reports.removed(pod if same else None, removal)


def _seen(archive: Archive, live: Collection[str], now: datetime) -> Archive:
    """The archive with whether its pod is there; the same one where that is no news."""
    manifest = archive.manifest
    if not manifest or not manifest.uid or (manifest.uid in live) != bool(manifest.gone_since):
        return archive
    since = None if manifest.uid in live else now
    return replace(archive, manifest=manifest.with_gone_since(since))
