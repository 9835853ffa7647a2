"""The price of a write: bounds of every namespace and of the store, and ResourceQuotas.

A write that grows is charged before it is made, by amounts that the storage's tally and the quotas'
status have; nothing is counted anew. The bounds are the server's own: what this server has under
way counts, so that many writes at once do not pass them together. A quota is exact for any number
of servers on one storage: the charged quota is stored in one transaction with the object, and only
if nobody changed it meanwhile; else the write is charged again. Within a server the charged writes
of a namespace take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

from orch.server.objects.document import Document, ObjectTarget, decode, encode, prefix_of
from orch.server.storage.base import OutcomeUnknown, Storage, Stored, Write
from orch.server.storage.tally import Bounds, Tally, place_in
from orch.server.strategy import quotas
from orch.server.strategy.quotas import Exceeded
from orch.wire.errors import ApiError
from orch.wire.names import (
    GROUP_MASTERS,
    QUOTA_BYTES,
    USER_APISERVER,
    USER_CONTROLLER_MANAGER,
)
from orch.wire.records.authentication import node_name_of
from orch.wire.records.kinds import EVENTS, LEASES, NODES, PODS, RESOURCE_QUOTAS

_OBJECT_BYTES = 1024  # what an object takes in memory beside its data, roughly
_RESERVE = 10  # per cent of each bound that are left to nodes, controllers and administrators
_EVENTS = 4  # events of a namespace may take a quarter of it
_LATE_S = 15.0  # longer than storage takes to make or fail a write whose caller went away
_STORE = "--max-store-mib"
_NEXT = "delete objects, or have the API server started with a higher bound"


class _Growth(NamedTuple):
    objects: int
    bytes: int


class Charging:
    """`charged` is held around every write that may grow; `turn` around a measurement."""

    def __init__(self, storage: Storage, bounds: Bounds) -> None:
        self._storage = storage
        self._bounds = bounds
        self._under_way = Tally()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def charged(
        self, target: ObjectTarget, document: Document, write: Write
    ) -> AsyncIterator[Sequence[Write]]:
        """The writes to make together with this one; ApiError 403, 507.

        A creation is charged whole, even over an object that is there: that may be gone by then.
        Storage refuses (RevisionMismatch) when a quota was charged by another server meanwhile.
        """
        key, size = write.key, len(write.data or b"")
        before = self._storage.get(key) if write.expected else None
        if before is None:
            growth = _Growth(1, size + len(key.encode()))
        else:
            growth = _Growth(0, size - len(before.data))
        if growth.bytes <= 0:
            yield ()
            return
        with self._bounded(target, document, key, growth):
            if not self._quotas(target) or (before and target.subresource == "status"):
                yield ()
                return
            async with self.turn(target.namespace):
                yield self._charges(target, document, growth)

    def turn(self, namespace: str) -> asyncio.Lock:
        """While it is held, no other charged write of the namespace is begun by this server."""
        return self._turns.setdefault(namespace, asyncio.Lock())

    def _quotas(self, target: ObjectTarget) -> Sequence[Stored]:
        if not target.strategy.resource.namespaced:
            return ()
        return self._storage.list(prefix_of(RESOURCE_QUOTAS, target.namespace)).items

    def _charges(
        self, target: ObjectTarget, document: Document, growth: _Growth
    ) -> Sequence[Write]:
        writes = []
        resource = target.strategy.resource
        for stored in self._quotas(target):
            quota = decode(stored)
            if not quotas.covers(quota, resource, document):
                continue
            try:
                after = _charged(quota, target, document, growth)
            except Exceeded as error:
                name = document["metadata"].get("name", "")
                raise target.forbidden(name, str(error)) from None
            if after is not None:
                writes.append(Write(stored.key, encode(after), stored.revision))
        return writes

    @contextmanager
    def _bounded(
        self, target: ObjectTarget, document: Document, key: str, growth: _Growth
    ) -> Iterator[None]:
        """Count the growth as under way; ApiError when it does not fit. The server itself must be
        able to start on a full store.
        """
        if target.identity.name != USER_APISERVER:
            self._require_room(target, document, key, growth)
        under_way, late_s = self._under_way, 0.0
        under_way.add(key, *growth)
        try:
            yield
        except (asyncio.CancelledError, OutcomeUnknown):
            late_s = _LATE_S
            raise
        finally:
            if late_s:
                done = partial(under_way.add, key, -growth.objects, -growth.bytes)
                asyncio.get_running_loop().call_later(late_s, done)
            else:
                under_way.add(key, -growth.objects, -growth.bytes)

    def _require_room(
        self, target: ObjectTarget, document: Document, key: str, growth: _Growth
    ) -> None:
        reserve = 0 if _may_use_reserve(target) else _RESERVE
        for need in self._needs(key, growth):
            limit = need.bound - (need.bound * reserve // 100)
            if not (need.bound and need.more and need.used + need.more > limit):
                continue
            if need.flag == _STORE:
                text = f"mvcc: database space exceeded: {need.used} of {limit} bytes are in use"
                raise ApiError(507, "InsufficientStorage", f"{text} ({_STORE}): {_NEXT}")
            text = f"exceeded quota: {need.flag}, requested: {need.unit}={need.more}"
            text += f", used: {need.unit}={need.used}, limited: {need.unit}={limit}: {_NEXT}"
            raise target.forbidden(document["metadata"].get("name", ""), text)

    def _needs(self, key: str, growth: _Growth) -> Iterator[_Need]:
        name, kind = place_in(key)
        bounds, under_way = self._bounds, self._under_way
        scope, coming = self._storage.tally.scope(name), under_way.scope(name)
        is_namespace = not name.startswith("/")
        amounts = [(scope.all, coming.all, 1, "")]
        if is_namespace and kind == EVENTS.plural:
            amounts.append((scope.of(kind), coming.of(kind), _EVENTS, " of events"))
        for stored, more, share, what in amounts:
            objects, size = stored.objects + more.objects, stored.bytes + more.bytes
            flag = f"--max-namespace-objects{what}"
            yield _Need(flag, "objects", bounds.objects // share, objects, growth.objects)
            if is_namespace:
                flag = f"--max-namespace-mib{what}"
                yield _Need(flag, "bytes", bounds.bytes // share, size, growth.bytes)
        held, coming_all = self._storage.tally.all, under_way.all
        size = held.bytes + coming_all.bytes + _OBJECT_BYTES * (held.objects + coming_all.objects)
        grown = growth.bytes + _OBJECT_BYTES * growth.objects
        yield _Need(_STORE, "bytes", bounds.store_bytes, size, grown)


class _Need(NamedTuple):
    flag: str
    unit: str
    bound: int  # 0: none
    used: int
    more: int


def _charged(
    quota: Document, target: ObjectTarget, document: Document, growth: _Growth
) -> Document | None:
    """The quota after the write; None when it stays as it is. Exceeded."""
    resource, hard = target.strategy.resource, quotas.hard_of(quota)
    if growth.objects:
        if resource is PODS:
            quotas.require_amounts(quota, document)
        return quotas.charged(quota, quotas.added(hard, resource, document, growth.bytes))
    if QUOTA_BYTES not in hard or resource is RESOURCE_QUOTAS:
        return None
    return quotas.charged(quota, {QUOTA_BYTES: growth.bytes * quotas.ONE})


def _may_use_reserve(target: ObjectTarget) -> bool:
    """Administrators, controllers, and nodes for what they report of themselves and of pods."""
    caller = target.identity
    if GROUP_MASTERS in caller.groups or caller.name == USER_CONTROLLER_MANAGER:
        return True
    reports = target.subresource == "status" or target.strategy.resource in (NODES, LEASES)
    return reports and node_name_of(caller) is not None
