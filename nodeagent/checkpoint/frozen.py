"""Looks for containers that somebody's checkpoint left frozen, and lets them run again.

What this agent's own checkpoints leave, the service frees at once. This is for the rest: a runtime
that dies or hangs while it checkpoints for somebody else (`crictl checkpoint`, an agent that lost
its disk) leaves the container frozen for ever, and when it comes back reports its state as Unknown.
That it is frozen is read from the kernel, so no answer of the runtime is needed to see it. While
the runtime answers, a container in the state Running is paused on purpose, or being checkpointed by
another client, and is left alone; so is in any case one that CRIU is still at work on.
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

# Worst case: the runtime falls silent right after an answer, is asked again 5 s later
# (`runtime.health`), counts as silent after 3 s, its containers are looked at in the next 3 s, and
# it has a second to resume one before the cgroup is thawed: 12 s.
INTERVAL_S = 1.5
LOOKS = 2  # a container must be found frozen so often in a row: a checkpoint may just be ending
LOOKS_AGAIN = 40  # before one that could not be freed is tried again, and told of, once more
SILENT_S = 3.0  # an answer that is due for so long will not come soon
FREE_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class ActiveContainer:
    """A container that has processes, or may have."""

    id: str
    name: str
    pod: Pod | None


class ActiveContainers(Protocol):
    def active_containers(self, *, only_unknown: bool) -> Iterable[ActiveContainer]:
        """All of them, or those alone whose state the runtime does not know."""
        ...


class FrozenWatch:
    """`is_busy` says of a container id whether it is being checkpointed or freed already.

    `silent_s` is for how long the runtime has owed an answer.
    """

    def __init__(
        self,
        pods: ActiveContainers,
        reviver: Reviver,
        reports: Reports,
        *,
        is_busy: Callable[[str], bool],
        silent_s: Callable[[], float],
    ) -> None:
        self._pods = pods
        self._reviver = reviver
        self._reports = reports
        self._is_busy = is_busy
        self._silent_s = silent_s
        self._seen: dict[str, int] = {}  # id → looks in a row that found it frozen
        self._unreadable: dict[str, str] = {}  # id → why nobody can see whether it is frozen

    async def step(self) -> None:
        """Look once; containers found frozen often enough are freed and told of."""
        silent = self._silent_s() >= SILENT_S
        doubtful = {
            one.id: one
            for one in self._pods.active_containers(only_unknown=not silent)
            if not self._is_busy(one.id)
        }
        if not doubtful:
            self._seen.clear()
            self._unreadable.clear()
            return
        root = self._reviver.cgroup_root
        frozen, unreadable = await asyncio.to_thread(freezer.left_frozen, root, doubtful.keys())
        self._say_unreadable(unreadable)
        self._seen = {one: self._seen.get(one, 0) + 1 for one in frozen}
        due = [one for one in frozen if self._seen[one] >= LOOKS and not self._is_busy(one)]
        await asyncio.gather(*(self._free(doubtful[one]) for one in due))

    async def _free(self, one: ActiveContainer) -> None:
        if await self._reviver.revive(one.id, limit_s=FREE_WITHIN_S, settled=True):
            self._reports.thawed(one.pod, one.name)
            del self._seen[one.id]
        else:
            self._seen[one.id] = LOOKS - LOOKS_AGAIN

    def _say_unreadable(self, unreadable: dict[str, str]) -> None:
        for container_id, why in unreadable.items():
            if self._unreadable.get(container_id) != why:
                log.error("cannot see whether container %s is frozen: %s", container_id, why)
        self._unreadable = unreadable
