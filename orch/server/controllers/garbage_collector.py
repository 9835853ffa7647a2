"""Delete objects whose owners no longer exist, and release owners that wait for their dependents.

Runs beside the server on the objects in memory, soon after a deletion and every 10 s. Owners are
read once per revision and cached beside it, unless they are many; of a round are kept only those
whose owners are not all there. A round over many objects yields to other work, and a write is
refused if its object has changed meanwhile. Carries out what `ownership` decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from functools import partial
from itertools import chain

from orch.component.process.loops import Periodic
from orch.server import turns
from orch.server.controllers.namespaces import SELF
from orch.server.controllers.ownership import (
    FOREGROUND,
    ORPHAN,
    GarbagePlan,
    Owned,
    OwnerState,
    Ref,
    plan,
)
from orch.server.objects.backend import Backend
from orch.server.objects.delete import delete
from orch.server.objects.document import Document, ObjectTarget, decode, key_of, place_of, prefix_of
from orch.server.objects.modify import Transform, modify
from orch.server.objects.options import DeleteOptions
from orch.server.storage.base import StorageFailed, Stored
from orch.wire.errors import ApiError
from orch.wire.records import aliases

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
_COALESCE_S = 0.2
_PAUSE = 3  # times what the latest round took: whoever deletes all the time costs others a quarter
_REMEMBERED = 8  # owners of an object
_NO_OWNERS = Owned("", "", ())
_FINALIZERS = {OwnerState.WAITING: FOREGROUND, OwnerState.ORPHANING: ORPHAN}


class GarbageCollector:
    """`loop` must run beside the server; wake it after a deletion. `upstream`: owner references
    may use the reference's group names.
    """

    def __init__(self, backend: Backend, *, upstream: bool = False) -> None:
        self._backend = backend
        self._upstream = upstream
        self._pause_s = _COALESCE_S
        self.loop = Periodic("dependents", self._step, interval_s=INTERVAL_S)

    async def _step(self) -> None:
        await asyncio.sleep(self._pause_s)  # many deletions together share one round
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        if await collect(self._backend, upstream=self._upstream):
            self.loop.wake()  # deletions may orphan further objects
        took_s = loop.time() - began_s
        self._pause_s = max(_COALESCE_S, min(INTERVAL_S, _PAUSE * took_s))


async def collect(backend: Backend, *, upstream: bool = False) -> bool:
    """One round; returns whether there was anything to do. Failures are left to the next."""
    owned: list[Owned] = []
    states: dict[tuple[str, Ref], OwnerState] = {}
    going: dict[str, tuple[str, str]] = {}
    async for stored in turns.in_turns(_objects(backend)):
        found = _owners_of(stored)
        seen = {(found.key, ref): _state(backend, found, ref, upstream=upstream)
                for ref in found.refs}  # fmt: skip
        is_going = b'"deletionTimestamp"' in stored.data
        waits_alone = is_going and all(state is OwnerState.GONE for state in seen.values())
        if not waits_alone and any(state is not OwnerState.THERE for state in seen.values()):
            owned.append(found)
            states |= seen
        if is_going:
            uid, state = stored.once("standing", _standing)
            if state in _FINALIZERS:
                going[uid] = (stored.key, _FINALIZERS[state])
    if not (owned or going):
        return False
    uids = {dependent.uid for dependent in owned}
    owners = {ref.uid async for stored in turns.in_turns(_objects(backend))
              for ref in _owners_of(stored).refs if ref.uid in uids}  # fmt: skip
    planned = await turns.aside(
        lambda: plan(owned, owners, going, lambda dependent, ref: states[dependent.key, ref])
    )
    return await _carry_out(backend, planned)


def _objects(backend: Backend) -> Iterator[Stored]:
    prefixes = [prefix_of(strategy.resource) for strategy in backend.kinds.stored]
    return (stored for prefix in prefixes for stored in backend.storage.list(prefix).items)


def _owners_of(stored: Stored) -> Owned:
    """Remembered if they are few: in memory they take eight times their bytes."""
    if b'"ownerReferences":[' not in stored.data:
        return _NO_OWNERS
    known: Owned | None = stored.memo.get("owned")
    found = known or _read_owners(stored)
    if len(found.refs) <= _REMEMBERED:
        stored.memo["owned"] = found
    return found


def _read_owners(stored: Stored) -> Owned:
    metadata = decode(stored)["metadata"]
    refs = tuple(
        Ref(ref["apiVersion"], ref["kind"], ref["name"], ref["uid"],
            ref.get("blockOwnerDeletion") is True)
        for ref in metadata.get("ownerReferences") or ()
    )  # fmt: skip
    return Owned(stored.key, metadata["uid"], refs)


def _standing(stored: Stored) -> tuple[str, OwnerState]:
    """The uid of an object, and its state as an owner."""
    metadata = decode(stored)["metadata"]
    return metadata["uid"], _state_of(metadata)


def _state_of(metadata: Document) -> OwnerState:
    finalizers = metadata.get("finalizers") or ()
    if metadata.get("deletionTimestamp"):
        for state, name in _FINALIZERS.items():
            if name in finalizers:
                return state
    return OwnerState.THERE


def _state(backend: Backend, owned: Owned, ref: Ref, *, upstream: bool) -> OwnerState:
    api_version = aliases.own_api_version(ref.api_version) if upstream else ref.api_version
    strategy = backend.kinds.of_kind(api_version, ref.kind)
    if strategy is None:
        return OwnerState.THERE  # not a kind of this server, so its state is unknown
    namespace = place_of(owned.key)[0] if strategy.resource.namespaced else ""
    if strategy.resource.namespaced and not namespace:
        return OwnerState.THERE  # no namespace known: left alone, as by the reference
    stored = backend.storage.get(key_of(strategy.resource, namespace, ref.name))
    if stored is None:
        return OwnerState.GONE
    uid, state = stored.once("standing", _standing)
    return state if uid == ref.uid else OwnerState.GONE


async def _carry_out(backend: Backend, planned: GarbagePlan) -> bool:
    """Whether anything was done: what failed is tried again when the next round is due."""
    steps = chain(
        ((key, partial(_change, change=partial(_without, uids=uids)))
         for key, uids in planned.let_go.items()),
        ((key, partial(_delete, in_foreground=foreground))
         for key, foreground in planned.delete.items()),
        ((key, partial(_change, change=partial(_released, finalizer=finalizer)))
         for key, finalizer in planned.release.items()),
    )  # fmt: skip
    # In turns, as a step that finds nothing to do awaits nothing.
    return any([await _tried(key, step(backend, key)) async for key, step in turns.in_turns(steps)])


async def _tried(key: str, step: Awaitable[bool]) -> bool:
    try:
        return await step
    except ApiError as error:
        if error.code not in (404, 409):  # deleted, or changed meanwhile
            log.warning("%s cannot be collected yet: %s", key, error)
    except StorageFailed as error:
        log.debug("%s cannot be collected yet: %s", key, error)
    return False


def _target(backend: Backend, key: str) -> ObjectTarget:
    return ObjectTarget(backend.kinds.of_key(key), SELF, *place_of(key))


async def _delete(backend: Backend, key: str, *, in_foreground: bool) -> bool:
    stored = backend.storage.get(key)
    if stored is None:
        return False
    propagation = "Foreground" if in_foreground else None
    options = DeleteOptions(resource_version=str(stored.revision), propagation=propagation)
    deleted = await delete(backend, _target(backend, key), options)
    if deleted.stored.revision == stored.revision:
        return False  # already being deleted
    log.info("deleted %s: its owners no longer exist", key)
    return True


async def _change(backend: Backend, key: str, change: Transform) -> bool:
    await modify(backend, _target(backend, key), change)
    return True


def _without(document: Document, uids: frozenset[str]) -> Document:
    """The object without its references to these owners."""
    metadata = dict(document["metadata"])
    kept = [ref for ref in metadata.get("ownerReferences") or () if ref["uid"] not in uids]
    metadata["ownerReferences"] = kept
    return {**document, "metadata": metadata}


def _released(document: Document, finalizer: str) -> Document:
    metadata = dict(document["metadata"])
    metadata["finalizers"] = [f for f in metadata.get("finalizers") or () if f != finalizer]
    return {**document, "metadata": metadata}
