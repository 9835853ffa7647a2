"""Delete an object, or a collection: at once, with grace, or when its finalizers are gone.

What should happen is decided by `decide`, a pure function of the object and the options; the rest
carries it out against storage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from orch.server import turns
from orch.server.objects.backend import Backend
from orch.server.objects.document import (
    Attempt,
    Document,
    ObjectTarget,
    decode,
    encode,
    place_of,
    prefix_of,
)
from orch.server.objects.options import DeleteOptions
from orch.server.objects.selection import Selection
from orch.server.storage.base import Stored
from orch.server.strategy import namespaces, priority_classes
from orch.server.strategy.base import Strategy
from orch.wire import times
from orch.wire.errors import ApiError
from orch.wire.records.kinds import NAMESPACES, PRIORITY_CLASSES

PROPAGATION_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
_AT_ONCE = 64  # concurrent deletions of a collection, so that they share commits
_BYTES_AT_ONCE = 512 * 1024
_BYTES_OF_DELETION = 7500  # what one of a collection counts as, beside its object


@dataclass(frozen=True, slots=True)
class Deletion:
    """`marked` None: remove the object now; else the document to store (unchanged: nothing)."""

    marked: Document | None


@dataclass(frozen=True, slots=True)
class Deleted:
    """The last (or marked) state, and whether the object is gone."""

    stored: Stored
    gone: bool


def decide(
    strategy: Strategy, document: Document, options: DeleteOptions, now: datetime
) -> Deletion:
    """How to delete `document` (left unchanged); a propagation policy adds the finalizer that
    makes the object wait for its dependents (see `orch.server.controllers.garbage_collector`).
    """
    metadata = dict(document["metadata"])
    waiting = _propagated(metadata, options.propagation)
    grace_s = strategy.grace_s(document, options.grace_period_s)
    held = metadata.get("finalizers") or namespaces.holders_of(strategy.resource, document)
    if not held and grace_s == 0:
        return Deletion(None)
    if metadata.get("deletionTimestamp"):
        previous_s = metadata.get("deletionGracePeriodSeconds") or 0
        if grace_s >= previous_s:
            return Deletion({**document, "metadata": metadata} if waiting else document)
    metadata["deletionTimestamp"] = times.format_time(now + timedelta(seconds=grace_s))
    metadata["deletionGracePeriodSeconds"] = grace_s
    if "generation" in metadata:
        metadata["generation"] += 1
    marked = {**document, "metadata": metadata}
    if strategy.resource is NAMESPACES:
        marked["status"] = {**(document.get("status") or {}), "phase": "Terminating"}
    return Deletion(marked)


def _propagated(metadata: Document, propagation: str | None) -> bool:
    """Set the policy's finalizer instead of the other's; returns whether anything changed."""
    if propagation is None:
        return False
    before = metadata.get("finalizers") or []
    wanted = [name for name in before if name not in PROPAGATION_FINALIZERS.values()]
    if propagation in PROPAGATION_FINALIZERS:
        wanted.append(PROPAGATION_FINALIZERS[propagation])
    if set(wanted) == set(before):
        return False
    metadata["finalizers"] = wanted
    return True


async def delete(backend: Backend, target: ObjectTarget, options: DeleteOptions) -> Deleted:
    """ApiError 403 (protected), 404, 409 (preconditions)."""
    resource = target.strategy.resource
    if resource is NAMESPACES and target.name in namespaces.PROTECTED:
        raise target.forbidden(target.name, "this namespace may not be deleted")
    if resource is PRIORITY_CLASSES and target.name in priority_classes.SYSTEM:
        text = "this is a system priority class and cannot be deleted"
        raise target.forbidden(target.name, text)

    async def attempt(stored: Stored) -> Deleted:
        document = decode(stored)
        backend.admit_deletion(target, document)
        check_preconditions(target, document, options)
        if backend.concerns_webhooks(target, "DELETE"):
            attempt = Attempt("DELETE", None, document, options.dry_run)
            await backend.ask_webhooks(target, attempt)
        deletion = decide(target.strategy, document, options, backend.now())
        return await _carry_out(backend, stored, deletion, dry_run=options.dry_run)

    return await backend.write_current(target, attempt)


async def _without_rate(_size: int) -> None:
    """Nobody is slowed."""


async def delete_collection(
    backend: Backend,
    target: ObjectTarget,
    selection: Selection,
    options: DeleteOptions,
    pace: Callable[[int], Awaitable[None]] = _without_rate,
) -> int:
    """Delete the selected objects, and return their number; objects deleted meanwhile are not an
    error. It keeps none of them: to free very many at once takes long as well. `pace` is
    waited for before so many bytes of it are deleted.
    """
    items = backend.storage.list(prefix_of(target.strategy.resource, target.namespace)).items
    selected = [
        (stored.key, len(stored.data))
        async for stored in turns.in_turns(items)
        if selection.matches(stored)
    ]
    del items
    deleted = 0

    async def delete_one(key: str) -> Deleted:
        await backend.deletions.take(turns.owner())
        namespace, name = place_of(key)
        return await delete(backend, target._replace(namespace=namespace, name=name), options)

    for some, size in _batches(selected):
        await pace(size + len(some) * _BYTES_OF_DELETION)
        results = await asyncio.gather(*map(delete_one, some), return_exceptions=True)
        for result in results:
            if isinstance(result, Deleted):
                deleted += 1
            elif not (isinstance(result, ApiError) and result.code == 404):
                raise result
    return deleted


def _batches(selected: Iterable[tuple[str, int]]) -> Iterator[tuple[list[str], int]]:
    """The keys of objects, given with their sizes, that are deleted together, few large ones, and
    the size of all of them.
    """
    batch: list[str] = []
    total = 0
    for key, size in selected:
        if batch and (len(batch) == _AT_ONCE or total + size > _BYTES_AT_ONCE):
            yield batch, total
            batch, total = [], 0
        batch.append(key)
        total += size
    if batch:
        yield batch, total


def check_preconditions(target: ObjectTarget, document: Document, options: DeleteOptions) -> None:
    """ApiError 409 when the caller names another uid or another version."""
    uid, version = document["metadata"]["uid"], document["metadata"]["resourceVersion"]
    if options.uid and options.uid != uid:
        raise target.conflict(
            f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {uid}"
        )
    if options.resource_version and options.resource_version != version:
        raise target.conflict(
            "Precondition failed: ResourceVersion in precondition:"
            f" {options.resource_version}, ResourceVersion in object meta: {version}"
        )


async def _carry_out(
    backend: Backend, stored: Stored, deletion: Deletion, *, dry_run: bool
) -> Deleted:
    if deletion.marked is None:
        if dry_run:
            return Deleted(stored, gone=True)
        return Deleted(await backend.storage.delete(stored.key, stored.revision), gone=True)
    data = encode(deletion.marked)
    if data == stored.data:
        return Deleted(stored, gone=False)
    if dry_run:
        return Deleted(Stored(stored.key, stored.revision, data), gone=False)
    marked = await backend.storage.update(stored.key, data, stored.revision)
    return Deleted(marked, gone=False)
