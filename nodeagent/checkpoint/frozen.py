"""Looks for containers that somebody's checkpoint left frozen, and lets them run again.

What this agent's own checkpoints leave, the service frees at once. This is for the rest: a runtime
that was killed while it checkpointed for somebody else (`crictl checkpoint`, an agent that lost its
disk) comes back, reports the container in the state Unknown, and leaves it frozen for ever. A
container that is paused on purpose keeps its state Running, and is left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from nodeagent import freezer
from nodeagent.checkpoint.reports import Reports
from nodeagent.freezer import Reviver
from orch.wire.pods import Pod

log = logging.getLogger(__name__)

LOOKS = 2  # a container must be found frozen so often in a row: a checkpoint may just be ending
LOOKS_AGAIN = 15  # before one that could not be freed is tried again, and told of, once more


@dataclass(frozen=True, slots=True)
class UnknownContainer:
    """A container whose state the runtime does not know."""

    id: str
    name: str
    pod: Pod | None


class UnknownContainers(Protocol):
    def unknown_containers(self) -> Iterable[UnknownContainer]: ...


class FrozenWatch:
    """`is_busy` says of a container id whether it is being checkpointed or freed already."""

    def __init__(
        self,
        pods: UnknownContainers,
        reviver: Reviver,
        reports: Reports,
        is_busy: Callable[[str], bool],
    ) -> None:
        self._pods = pods
        self._reviver = reviver
        self._reports = reports
        self._is_busy = is_busy
        self._seen: dict[str, int] = {}  # id → looks in a row that found it frozen
        self._unreadable: dict[str, str] = {}  # id → why nobody can see whether it is frozen

    async def step(self) -> None:
        """Look once; a container found frozen often enough is freed and told of."""
        unknown = [one for one in self._pods.unknown_containers() if not self._is_busy(one.id)]
        if not unknown:
            self._seen.clear()
            self._unreadable.clear()
            return
        frozen = await asyncio.to_thread(self._frozen, unknown)
        self._seen = {one.id: self._seen.get(one.id, 0) + 1 for one in frozen}
        for one in frozen:
            if self._seen[one.id] >= LOOKS and not self._is_busy(one.id):
                await self._free(one)

    async def _free(self, one: UnknownContainer) -> None:
        if await self._reviver.revive(one.id, settled=True):
            self._reports.thawed(one.pod, one.name)
            del self._seen[one.id]
        else:
            self._seen[one.id] = LOOKS - LOOKS_AGAIN

    def _frozen(self, unknown: Iterable[UnknownContainer]) -> list[UnknownContainer]:
        found, unreadable = [], {}
        for one in unknown:
            try:
                if freezer.is_frozen(self._reviver.cgroup_root, one.id):
                    found.append(one)
            except OSError as error:
                unreadable[one.id] = str(error)
                if self._unreadable.get(one.id) != str(error):
                    log.error("cannot see whether container %s is frozen: %s", one.id, error)
        self._unreadable = unreadable
        return found
