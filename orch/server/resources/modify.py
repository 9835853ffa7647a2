"""Change an object: by a replacement (PUT) or by a patch, also of one subresource.

Optimistic: the change is computed from the current object and stored if that is still current;
else it is computed again, and refused then if the client said which version it had in mind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orch.server import fieldcauses, validate
from orch.server.resources import metadata
from orch.server.resources.backend import Backend, Target
from orch.server.resources.create import create
from orch.server.resources.document import Document, decode, encode, same
from orch.server.resources.options import WriteOptions
from orch.server.storage.base import KeyMissing, RevisionMismatch, Stored
from orch.server.strategy import namespaces
from orch.server.strategy.base import keep

_TRIES = 16  # each lost to another writer; then the client is told to try again

# Makes the new document from the current one, which it must not change.
Change = Callable[[Document], Document]


async def replace(
    backend: Backend, target: Target, document: Document, options: WriteOptions
) -> tuple[Stored, bool]:
    """PUT: the stored object and whether it was created. `document` is taken over."""
    resource = target.strategy.resource
    metadata.fit_to_endpoint(resource, target.namespace, document)
    metadata.fit_to_name(target.name, document)
    exists = backend.storage.get(target.key) is not None
    if not exists and resource.create_on_update and not target.subresource:
        document["metadata"].pop("resourceVersion", None)
        return await create(backend, target, document, options), True
    if not document["metadata"].get("resourceVersion") and not resource.unconditional_update:
        cause = fieldcauses.invalid_value(
            "metadata.resourceVersion", 0, "must be specified for an update"
        )
        raise validate.refusal(target.strategy, target.name, (cause,))
    return await modify(backend, target, lambda _current: document, options), False


async def modify(backend: Backend, target: Target, change: Change, options: WriteOptions) -> Stored:
    """The object as it is after the change; ApiError 404, 409, 422 and what `change` raises."""
    for _ in range(_TRIES):
        stored = backend.find(target)
        old = decode(stored)
        sent = change(old)
        validate.check_shape(target.strategy, sent)
        _check_preconditions(target, sent, old)
        new = _prepared(target, sent, old)
        validate.check(target.strategy, new, old)
        backend.admit(target, new, old)
        if same(new, old):
            return stored
        if options.dry_run:
            return Stored(stored.key, stored.revision, encode(new))
        try:
            return await _store(backend, target, new, stored)
        except KeyMissing:
            raise target.not_found() from None
        except RevisionMismatch:
            continue  # what the client pinned to a version is refused in the next round
    raise target.conflict()


def _check_preconditions(target: Target, sent: Document, old: Document) -> None:
    """ApiError 409 when the client means another version or another object of that name."""
    sent_metadata: dict[str, Any] = sent["metadata"]
    stored_metadata = old["metadata"]
    uid = sent_metadata.get("uid")
    if uid and uid != stored_metadata["uid"]:
        raise target.conflict(
            f"Precondition failed: UID in precondition: {uid}, UID in object meta:"
            f" {stored_metadata['uid']}"
        )
    version = sent_metadata.get("resourceVersion")
    if version and version != stored_metadata["resourceVersion"]:
        raise target.conflict()


def _prepared(target: Target, sent: Document, old: Document) -> Document:
    """The document to store: the client's part of the change upon what the server keeps."""
    new = {**sent, "metadata": dict(sent["metadata"])}
    metadata.stamp_changed(new, old)
    match target.subresource:
        case "status":
            target.strategy.prepare_status(new, old)
        case "finalize":
            finalizers = (new.get("spec") or {}).get("finalizers") or []
            new["metadata"] = old["metadata"]
            keep(new, old, "status")
            new["spec"] = {**(old.get("spec") or {}), "finalizers": finalizers}
        case _:
            target.strategy.prepare_update(new, old)
    return new


async def _store(backend: Backend, target: Target, new: Document, stored: Stored) -> Stored:
    """Write it, or delete it when the last thing that held back its deletion is gone."""
    if _may_go(target, new):
        return await backend.storage.delete(stored.key, stored.revision)
    return await backend.storage.update(stored.key, encode(new), stored.revision)


def _may_go(target: Target, document: Document) -> bool:
    meta = document["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    if meta.get("deletionGracePeriodSeconds"):
        return False
    return not namespaces.holders_of(target.strategy.resource, document)
