"""Keeps the store within its bounds: before a checkpoint, soon after it, and every minute.

`bounds` decides; this does, and tells. What is pinned stays, and when the store is too large for
its file system because of that, the node reports disk pressure.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Protocol

from nodeagent.checkpoint import bounds
from nodeagent.checkpoint.bounds import Archive, Bounds, Removal
from nodeagent.checkpoint.counts import StoreState
from nodeagent.checkpoint.folder import StoreError
from nodeagent.checkpoint.reports import Reports
from nodeagent.checkpoint.shelf import Shelf
from orch.component import clock
from orch.component.clock import Now
from orch.wire.pods import Pod

log = logging.getLogger(__name__)


class KnownPods(Protocol):
    def find(self, namespace: str, name: str) -> Pod | None: ...
    def live_uids(self) -> Collection[str] | None:
        """Of the pods that should be here; None while not all of them are known."""
        ...


class Pruner:
    """`wake` is called when a step is wanted soon; whoever runs the steps puts it there."""

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
        self.wake: Callable[[], None] = lambda: None
        self._limits = limits
        self._pods = pods
        self._now = now
        self._one_at_a_time = threading.Lock()
        self._new: set[str] = set()  # archives made since the last step: none of them goes
        self._trouble = ""  # of the last step, as it was said

    async def step(self) -> None:
        """Look through the store once; what cannot be done is said once, and tried again."""
        kept, trouble = set(self._new), ""
        try:
            await self._prune()
        except (StoreError, OSError) as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            log.error("the checkpoint store cannot be kept within its bounds: %s", trouble)
        self._trouble = trouble
        self._new -= kept

    async def make_room(self, new: Archive, need_bytes: int) -> None:
        """Make room for an archive like `new`, whose size is a guess.

        `need_bytes` are written meanwhile. StoreError says what there is no room for, and how much
        is missing; nothing is removed then but what has to go anyway.
        """
        refused = await asyncio.to_thread(self._refusal, new, need_bytes)
        await self._prune(need_bytes=0 if refused else need_bytes)
        if refused:
            raise StoreError(refused)

    def made(self, name: str) -> None:
        """An archive was made: older ones may have to go, for which its maker need not wait."""
        self._new.add(name)
        self.wake()

    async def _prune(self, *, need_bytes: int = 0) -> None:
        live, before, kept = self._pods.live_uids(), self.reports.counts.store, set(self._new)
        removed, state = await asyncio.to_thread(self._prune_now, live, kept, need_bytes)
        self.reports.counts.store = state
        for removal in removed:
            self._tell(removal)
        if state.excess_bytes and not (before and before.excess_bytes):
            log.warning(
                "checkpoint archives take %d bytes more than they may and are pinned: the node "
                "reports disk pressure until some are unpinned or moved away from %s",
                state.excess_bytes,
                self.shelf.path,
            )

    def _prune_now(
        self, live: Collection[str] | None, kept: Collection[str], need_bytes: int
    ) -> tuple[tuple[Removal, ...], StoreState]:
        with self._one_at_a_time:
            now = self._now()
            if live is not None:
                self._note_gone_pods(live, now)
            archives, space = self.shelf.archives(), self.shelf.space()
            chosen = bounds.removals(
                archives, self._limits, space, now, kept=kept, need_bytes=need_bytes
            )
            for removal in chosen:
                self.shelf.remove(removal.archive)
            return chosen, self._state()

    def _note_gone_pods(self, live: Collection[str], now: datetime) -> None:
        for archive in self.shelf.archives():
            manifest = archive.manifest
            if manifest and manifest.uid and (manifest.uid in live) == bool(manifest.gone_since):
                since = None if manifest.uid in live else now
                self.shelf.note_pod(archive, gone_since=since)

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
