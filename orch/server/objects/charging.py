"""The price of a write: bounds of every namespace, node and of the store, and ResourceQuotas.

A write that grows is charged before it is made, by amounts that the storage's tally and the quotas'
status have; nothing is counted anew. The bounds are the server's own: what this server has under
way counts, so that many writes at once do not pass them together. A quota is exact for any number
of servers on one storage: the charged quota is stored in one transaction with the object, and only
if nobody changed it meanwhile; else the write is charged again. Within a server the charged writes
of a namespace take turns.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from weakref import WeakValueDictionary

from orch.server.objects.document import Document, ObjectTarget, decode, encode, key_of, prefix_of
from orch.server.storage import tally
from orch.server.storage.base import OutcomeUnknown, Storage, Stored, Write
from orch.server.storage.tally import (
    Bounds,
    Count,
    Growth,
    NodeTally,
    Tally,
    key_on,
    less,
    place_in,
)
from orch.server.strategy import quotas
from orch.server.strategy.pods import BINDING, RESIZE, node_of
from orch.server.strategy.quotas import Amounts, Exceeded
from orch.wire import raw
from orch.wire.errors import ApiError, Cause
from orch.wire.names import (
    CAUSE_NODE_FULL,
    CRITICAL_PRIORITY,
    GROUP_MASTERS,
    QUOTA_BYTES,
    SYSTEM_NAMESPACE,
    USER_APISERVER,
    USER_CONTROLLER_MANAGER,
)
from orch.wire.podrules.podspec import FINAL_PHASES
from orch.wire.records.authentication import node_name_of
from orch.wire.records.kinds import (
    EVENTS,
    LEASES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    ROLE_BINDINGS,
    ROLES,
)

_OBJECT_BYTES = 1024  # what an object takes in memory beside its data, roughly
_RESERVE = 10  # per cent of each bound that are left to nodes, controllers and administrators
# By kind, which part of a namespace its objects may take: events are written by whoever may, roles
# and bindings take six times their bytes in the authorizer's memory.
_SHARES = {
    EVENTS.plural: 4,
    PODS.plural: 8,
    **{f"{kind.plural}.{kind.group}": 8 for kind in (ROLES, ROLE_BINDINGS)},
}
# Agents and controllers hold pods as records: even an empty one, three bytes here, takes as much.
_RECORD_BYTES = 640
_IN_MEMORY = 2  # times the bytes of a namespace: what its pods may take there
_LATE_S = 15.0  # longer than storage takes to make or fail a write whose caller went away
_STORE = "--max-store-mib"
_PODS_IN_MEMORY = "twice --max-namespace-mib for the memory that pods take of agents=bytes"
_NEXT = "delete objects, or have the API server started with a higher bound"
_NODE = "--max-node-mib of node {}{} for the memory that pods take of its agent"
_NODE_NEXT = (
    "delete pods of that node, choose another one, or have the API server started with a higher"
    " bound"
)
_OF_A_NODE, _EVENTS_MIN = 8, 100  # its part of a namespace's events, and not less
_EVENTS_S = 3600.0  # in which what it took is its again, and for which events are kept
_REMEMBERED = 4096  # nodes in namespaces
_NOTHING = Growth(0, 0, 0)
_CONTAINERS = (
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
    ("ephemeralContainers", "ephemeralContainerStatuses"),
)
_STATUS_BYTES, _STATUS_RECORDS = 1024, 10  # of a container, once its node reports of it


class Charging:
    """`charged` is held around every write that may grow; `turn` around a measurement. `nodes` is
    to follow the pods of storage.
    """

    def __init__(self, storage: Storage, bounds: Bounds) -> None:
        self.nodes = NodeTally()
        self._storage = storage
        self._bounds = bounds
        self._under_way = Tally()
        self._under_way_to_nodes = Tally()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._events_of_nodes = _Taken()

    @asynccontextmanager
    async def charged(
        self, target: ObjectTarget, document: Document, write: Write
    ) -> AsyncIterator[Sequence[Write]]:
        """The writes to make together with this one; ApiError 403, 507.

        A creation is charged whole, even over an object that is there: that may be gone by then; a
        binding costs its node the whole pod, and nothing else. Storage refuses (RevisionMismatch)
        when a quota was charged by another server meanwhile.
        """
        key = write.key
        before = self._storage.get(key) if write.expected else None
        more = _more(tally.growth(key, before.data if before else None, write.data or b""))
        binds = target.subresource == BINDING
        on_node = more
        if binds or before is None:
            on_node = on_its_node(document, write.data or b"")
        growth = _NOTHING if binds else more
        reports, is_pod = target.subresource == "status", target.strategy.resource is PODS
        # With a deadline, which is only ever added, a pod is in other scopes.
        counts_anew = is_pod and not reports and "activeDeadlineSeconds" in document["spec"]
        altered = before is not None and (counts_anew or target.subresource == RESIZE)
        if not (growth.bytes or growth.records or altered or binds):
            yield ()
            return
        node = node_of(document) if is_pod else ""
        with (
            self._on_node(target, document, node, on_node),
            self._bounded(target, document, key, growth),
        ):
            if binds or not self._quotas(target) or (before and reports):
                yield ()
                return
            async with self.turn(target.namespace):
                former = decode(before) if before and altered else None
                yield self._charges(target, document, growth, former)

    def turn(self, namespace: str) -> asyncio.Lock:
        """While it is held, no other charged write of the namespace is begun by this server."""
        return self._turns.setdefault(namespace, asyncio.Lock())

    def _quotas(self, target: ObjectTarget) -> Sequence[Stored]:
        if not target.strategy.resource.namespaced:
            return ()
        return self._storage.list(prefix_of(RESOURCE_QUOTAS, target.namespace)).items

    def _charges(
        self, target: ObjectTarget, document: Document, growth: Growth, former: Document | None
    ) -> Sequence[Write]:
        """`former` is the pod before a change; None for other writes."""
        writes = []
        resource = target.strategy.resource
        for stored in self._quotas(target):
            quota = decode(stored)
            if not quotas.covers(quota, resource, document):
                continue
            try:
                if former is None:
                    after = _charged(quota, target, document, growth)
                elif quotas.covers(quota, resource, former):
                    after = quotas.charged(quota, _grown(quota, document, former, growth))
                else:
                    after = _charged(quota, target, document, growth._replace(objects=1))
            except Exceeded as error:
                name = document["metadata"].get("name", "")
                raise target.forbidden(name, str(error)) from None
            if after is not None:
                writes.append(Write(stored.key, encode(after), stored.revision))
        return writes

    @contextmanager
    def _bounded(
        self, target: ObjectTarget, document: Document, key: str, growth: Growth
    ) -> Iterator[None]:
        """Count the growth as under way; ApiError when it does not fit. The server itself must be
        able to start on a full store.
        """
        if target.identity.name != USER_APISERVER:
            self._require_room(target, document, key, growth)
            self._require_few_events(target, document, key, growth)
        with _counted(self._under_way, key, growth):
            yield

    @contextmanager
    def _on_node(
        self, target: ObjectTarget, document: Document, node: str, growth: Growth
    ) -> Iterator[None]:
        """`_bounded`, of the memory that the pod takes of its node's agent; `node` "": of none."""
        if not (node and self._bounds.node_bytes):
            yield
            return
        key = key_on(node, key_of(PODS, target.namespace, document["metadata"]["name"]))
        if not _passes_nodes_bound(target, document):
            self._require_room_on_node(target, document, node, _in_memory(growth))
        with _counted(self._under_way_to_nodes, key, growth):
            yield

    def _require_room_on_node(
        self, target: ObjectTarget, document: Document, node: str, more: int
    ) -> None:
        """No namespace takes more than half, so that nobody takes all of a node."""
        bound, namespace = self._bounds.node_bytes, target.namespace
        there, coming = self.nodes.amounts.scope(node), self._under_way_to_nodes.scope(node)
        of_namespace = _in_memory(there.of(namespace)) + _in_memory(coming.of(namespace))
        in_all = _in_memory(there.all) + _in_memory(coming.all)
        for part, used, limit in (
            (f", half of it for namespace {namespace},", of_namespace, bound // 2),
            ("", in_all, bound),
        ):
            if more and used + more > limit:
                text = f"exceeded quota: {_NODE.format(node, part)}, requested: bytes={more},"
                text += f" used: bytes={used}, limited: bytes={limit}: {_NODE_NEXT}"
                cause = Cause(CAUSE_NODE_FULL, text)
                raise target.forbidden(document["metadata"].get("name", ""), text, (cause,))

    def _require_few_events(
        self, target: ObjectTarget, document: Document, key: str, growth: Growth
    ) -> None:
        """Nodes write events into every namespace: one of them leaves room for others'."""
        node, kind = node_name_of(target.identity), place_in(key)[1]
        if node is None or kind != EVENTS.plural:
            return
        bounds, parts = self._bounds, _SHARES[kind] * _OF_A_NODE
        objects = max(_EVENTS_MIN, bounds.objects // parts) if bounds.objects else math.inf
        size = max(_EVENTS_MIN * _OBJECT_BYTES, bounds.bytes // parts) if bounds.bytes else math.inf
        part = max(growth.objects / objects, growth.bytes / size)
        if not self._events_of_nodes.take((node, target.namespace), part):
            text = f"exceeded quota: node {node} has written an eighth of the events that"
            text += f" {target.namespace} may have, within an hour: wait, or have the API server"
            text += " started with a higher --max-namespace-objects or --max-namespace-mib"
            raise target.forbidden(document["metadata"].get("name", ""), text)

    def _require_room(
        self, target: ObjectTarget, document: Document, key: str, growth: Growth
    ) -> None:
        reserve = 0 if _may_use_reserve(target) else _RESERVE
        for what, bound, used, more in self._needs(key, growth):
            limit = bound - bound * reserve // 100
            if not (bound and more and used + more > limit):
                continue
            if what is _PODS_IN_MEMORY and not reserve:
                continue  # nodes report of the pods that are there
            if what is _STORE:
                text = f"mvcc: database space exceeded: {used} of {limit} bytes are in use"
                raise ApiError(507, "InsufficientStorage", f"{text} ({_STORE}): {_NEXT}")
            flag, _, unit = what.partition("=")
            text = f"exceeded quota: {flag}, requested: {unit}={more}, used: {unit}={used}"
            text += f", limited: {unit}={limit}: {_NEXT}"
            raise target.forbidden(document["metadata"].get("name", ""), text)

    def _needs(self, key: str, growth: Growth) -> Iterator[tuple[str, int, int, int]]:
        """The bounds that matter: flag and unit, the bound (0: none), what is used, what is added.

        What is under way counts as used.
        """
        name, kind = place_in(key)
        bounds, stored, coming = self._bounds, self._storage.tally, self._under_way
        scope, more = stored.scope(name), coming.scope(name)
        used = scope.all.objects + more.all.objects
        yield "--max-namespace-objects=objects", bounds.objects, used, growth.objects
        if not name.startswith("/"):
            used = scope.all.bytes + more.all.bytes
            yield "--max-namespace-mib=bytes", bounds.bytes, used, growth.bytes
            if share := _SHARES.get(kind):
                part, more_of_it = scope.of(kind), more.of(kind)
                plural = kind.partition(".")[0]
                used = part.objects + more_of_it.objects
                flag = f"--max-namespace-objects of {plural}=objects"
                yield flag, bounds.objects // share, used, growth.objects
                used = part.bytes + more_of_it.bytes
                flag = f"--max-namespace-mib of {plural}=bytes"
                yield flag, bounds.bytes // share, used, growth.bytes
        if kind == PODS.plural:
            used = _in_memory(scope.of(kind)) + _in_memory(more.of(kind))
            yield _PODS_IN_MEMORY, bounds.bytes * _IN_MEMORY, used, _in_memory(growth)
        objects, size = stored.all.objects + coming.all.objects, stored.all.bytes + coming.all.bytes
        grown = growth.bytes + _OBJECT_BYTES * growth.objects
        yield _STORE, bounds.store_bytes, size + _OBJECT_BYTES * objects, grown


class _Taken:
    """What nodes have lately taken of their part; it is theirs again bit by bit."""

    def __init__(self) -> None:
        self._levels: dict[tuple[str, str], tuple[float, float]] = {}  # and when that was
        self._most = _REMEMBERED  # until those that are empty again are let go

    def take(self, who: tuple[str, str], part: float) -> bool:
        """Whether that is left; then it is taken."""
        now_s = asyncio.get_running_loop().time()
        if len(self._levels) >= self._most:
            self._levels = {one: level for one, level in self._levels.items()
                            if _left(level, now_s) > 0}  # fmt: skip
            self._most = max(_REMEMBERED, 2 * len(self._levels))  # seldom, however many there are
        level = _left(self._levels.get(who, (0.0, now_s)), now_s) + part
        if level > 1:
            return False
        self._levels[who] = (level, now_s)
        return True


def _left(level: tuple[float, float], now_s: float) -> float:
    return max(0.0, level[0] - (now_s - level[1]) / _EVENTS_S)


@contextmanager
def _counted(under_way: Tally, key: str, growth: Growth) -> Iterator[None]:
    """Count it, until the write is made or has failed for sure."""
    late_s = 0.0
    under_way.add(key, growth)
    try:
        yield
    except (asyncio.CancelledError, OutcomeUnknown):
        late_s = _LATE_S
        raise
    finally:
        done = partial(under_way.add, key, less(growth))
        if late_s:
            asyncio.get_running_loop().call_later(late_s, done)
        else:
            done()


def on_its_node(pod: Document, data: bytes) -> Growth:
    """What a pod takes of its agent, with the statuses that its containers are to have."""
    held = tally.growth("", None, data)
    spec, status = raw.mapping(pod, "spec"), raw.mapping(pod, "status")
    if status.get("phase") in FINAL_PHASES:
        return held
    more = 0
    for listed, reported in _CONTAINERS:
        if containers := spec.get(listed):
            more += max(0, len(containers) - len(status.get(reported) or ()))
    size, records = held.bytes + more * _STATUS_BYTES, held.records + more * _STATUS_RECORDS
    return Growth(held.objects, size, records)


def _more(change: Growth) -> Growth:
    return Growth(*(max(0, more) for more in change))


def _in_memory(amount: Growth | Count) -> int:
    """What the records of these pods take, roughly."""
    return amount.bytes + _RECORD_BYTES * amount.records


def _charged(
    quota: Document, target: ObjectTarget, document: Document, growth: Growth
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


def _grown(quota: Document, pod: Document, before: Document, growth: Growth) -> Amounts:
    hard = quotas.hard_of(quota)
    amounts = dict(quotas.grown(hard, pod, before))
    if QUOTA_BYTES in hard and growth.bytes:
        amounts[QUOTA_BYTES] = growth.bytes * quotas.ONE
    return amounts


def _passes_nodes_bound(target: ObjectTarget, document: Document) -> bool:
    """The system's pods must run on every node, and what runs is reported of and shown. Of a
    binding the pod counts, since one program binds those of all.
    """
    critical = raw.number(document, "spec", "priority") >= CRITICAL_PRIORITY
    if target.namespace == SYSTEM_NAMESPACE or critical:
        return True
    is_node = node_name_of(target.identity) is not None
    return is_node or (target.subresource != BINDING and _may_use_reserve(target))


def _may_use_reserve(target: ObjectTarget) -> bool:
    """Administrators, controllers, and nodes for what they report of themselves and of pods."""
    caller = target.identity
    if GROUP_MASTERS in caller.groups or caller.name == USER_CONTROLLER_MANAGER:
        return True
    reports = target.subresource == "status" or target.strategy.resource in (NODES, LEASES)
    return reports and node_name_of(caller) is not None
