"""The usage of each ResourceQuota, measured anew when its namespace or the quota changed.

Writers charge quotas themselves (`objects.charging`); this loop gives back what was deleted, and
makes the first measurement of a new quota. A measurement replaces only the state of the quota that
it was made beside: a write that was charged meanwhile, by any server, is never forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from orch.component.process.loops import Periodic
from orch.server.objects.charging import Charging
from orch.server.objects.document import Document, decode, encode, place_of, prefix_of
from orch.server.objects.informer import StorageInformer
from orch.server.storage.base import Storage, StorageError, Stored
from orch.server.storage.tally import ScopeTally
from orch.server.strategy import quotas
from orch.server.strategy.quotas import Amounts
from orch.wire.names import QUOTA_BYTES
from orch.wire.records.kinds import PODS, RESOURCE_QUOTAS

log = logging.getLogger(__name__)

INTERVAL_S = 1.0  # it is also woken by new quotas and by deletions
_PER_TURN = 50
_BYTES_PER_TURN = 256 * 1024


class QuotaUsage:
    """`loop` and `informer` must run; `loop.wake` makes it look at once."""

    def __init__(self, storage: Storage, charging: Charging) -> None:
        self._storage = storage
        self._charging = charging
        self._measured: dict[str, tuple[int, int]] = {}  # by key: the quota, and what it is about
        self.loop = Periodic("quotas", self.measure, interval_s=INTERVAL_S)
        self.informer = StorageInformer(storage, RESOURCE_QUOTAS, self._look)

    async def measure(self) -> None:
        """One round over the quotas whose namespace changed; failures are left to the next."""
        for number, stored in enumerate(self._storage.list(prefix_of(RESOURCE_QUOTAS)).items):
            if number % _PER_TURN == 0:
                await asyncio.sleep(0)
            if self._state_of(stored) == self._measured.get(stored.key):
                continue
            namespace, _ = place_of(stored.key)
            async with self._charging.turn(namespace):
                try:
                    await self._measure(stored.key, namespace)
                except StorageError as error:
                    log.debug("%s is not measured yet: %s", stored.key, error)

    def _look(self, key: str, stored: Stored | None) -> None:
        if stored is None:
            self._measured.pop(key, None)
        elif quotas.hard_of(decode(stored)).keys() != quotas.used_of(decode(stored)).keys():
            self.loop.wake()

    def _state_of(self, stored: Stored) -> tuple[int, int]:
        return stored.revision, _changes(self._storage.tally.scope(place_of(stored.key)[0]))

    async def _measure(self, key: str, namespace: str) -> None:
        stored = self._storage.get(key)
        if stored is None:
            return
        state, quota = self._state_of(stored), decode(stored)
        pods = self._storage.list(prefix_of(PODS, namespace)).items
        used = _counted(quota, self._storage.tally.scope(namespace))
        # No await until here: all of this is of one moment, and so is the revision of the quota.
        used |= await _of_pods(quota, pods)
        data = encode(quotas.with_used(quota, used))
        if data != stored.data:
            stored = await self._storage.update(key, data, stored.revision)
        self._measured[key] = stored.revision, state[1]


def _changes(scope: ScopeTally) -> int:
    """How often anything but quotas changed."""
    return scope.all.changes - scope.of(RESOURCE_QUOTAS.plural).changes


def _counted(quota: Document, scope: ScopeTally) -> dict[str, int]:
    """The names that the tally knows, and those that count nothing."""
    found = {}
    for name in quotas.hard_of(quota):
        amount = scope.of(quotas.counted_kind(name)).objects
        if name == QUOTA_BYTES:
            amount = scope.all.bytes - scope.of(RESOURCE_QUOTAS.plural).bytes
        found[name] = amount * quotas.ONE
    return found


async def _of_pods(quota: Document, pods: Sequence[Stored]) -> dict[str, int]:
    """The names that need a look at each pod; a little at a time."""
    scoped = bool(quotas.requirements(quota))
    names = sorted(name for name in quotas.hard_of(quota) if scoped or quotas.is_of_pods(name))
    used = dict.fromkeys(names, 0)
    memo, amounts = f"quota {quota['metadata']['uid']} {names}", partial(_amounts, quota, names)
    looked_at = 0  # bytes
    for stored in pods if names else ():
        looked_at += len(stored.data) + _BYTES_PER_TURN // _PER_TURN
        if looked_at > _BYTES_PER_TURN:
            looked_at = 0
            await asyncio.sleep(0)
        for name, amount in stored.once(memo, amounts).items():
            used[name] += amount
    return used


def _amounts(quota: Document, names: list[str], stored: Stored) -> Amounts:
    pod = decode(stored)
    return quotas.of_pod(names, pod) if quotas.covers(quota, PODS, pod) else {}
