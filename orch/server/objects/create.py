"""Create an object: prepare, validate, admit, store."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from orch.server import turns
from orch.server.objects import metadata, validation
from orch.server.objects.backend import TRIES, Backend
from orch.server.objects.document import Document, ObjectTarget, decode, encode, key_of
from orch.server.objects.options import NO_OPTIONS, WriteOptions
from orch.server.request.bodies import require_bounded
from orch.server.storage.base import KeyExists, RevisionMismatch, Stored, Write
from orch.server.strategy import namespaces
from orch.server.strategy.base import Strategy
from orch.wire import errors, times
from orch.wire.errors import ApiError, Cause, bad_request
from orch.wire.records.kinds import NAMESPACES

_GENERATE_TRIES = 8


async def create(
    backend: Backend, target: ObjectTarget, document: Document, options: WriteOptions = NO_OPTIONS
) -> Stored:
    """The stored object; with `dry_run`, what it would be, at revision 0.

    ApiError 400, 403, 404 (namespace), 409, 422. `document` is taken over.
    """
    metadata.fit_to_endpoint(target.strategy.resource, target.namespace, document)
    if target.name:
        metadata.fit_to_name(target.name, document)
    sent = document["metadata"]
    if metadata.named_version(sent):
        raise bad_request("resourceVersion should not be set on objects to be created")
    await turns.compute(partial(validation.check_shape, target.strategy, document))
    for name in _names(backend, sent):
        stored = await _try_create(backend, target, name, document, options)
        if stored is not None:
            return stored
    raise _taken(target, sent)


def _names(backend: Backend, sent: metadata.Metadata) -> Iterator[str]:
    """The given name, or several generated names to try."""
    if sent.get("name") or not sent.get("generateName"):
        yield sent.get("name") or ""
        return
    for _ in range(_GENERATE_TRIES):
        yield metadata.generated_name(sent["generateName"], backend.new_suffix())


async def _try_create(
    backend: Backend, target: ObjectTarget, name: str, document: Document, options: WriteOptions
) -> Stored | None:
    """None when the name is taken."""
    strategy = target.strategy
    metadata.stamp_new(
        document, name=name, uid=backend.new_uid(), created=times.format_time(backend.now())
    )
    await turns.compute(partial(_complete, strategy, document))
    backend.admit(target, document, None)
    key, data = key_of(strategy.resource, target.namespace, name), encode(document)
    require_bounded(data)
    for _ in range(TRIES):
        try:
            async with backend.charge(target, document, Write(key, data, 0)) as charges:
                # No await from here to the queue of storage: a namespace found active now cannot be
                # emptied before this object is visible in it (see `controllers.namespaces`).
                _require_namespace(backend, target, name)
                if options.dry_run:
                    return None if backend.storage.get(key) else Stored(key, 0, data)
                return await backend.storage.create(key, data, charges)
        except KeyExists:
            return None
        except RevisionMismatch:
            continue  # another server charged the same quota
    raise target.conflict()


def _complete(strategy: Strategy, document: Document) -> None:
    strategy.prepare_create(document)
    validation.check(strategy, document)


def _taken(target: ObjectTarget, sent: metadata.Metadata) -> ApiError:
    resource = target.strategy.resource
    error = errors.already_exists(resource.plural, sent.get("name", ""), resource.group)
    if sent.get("generateName") and not target.name:
        error.message += ", the server was not able to generate a unique name for the object"
        error.retry_after_s = 1
    return error


def _require_namespace(backend: Backend, target: ObjectTarget, name: str) -> None:
    if not target.strategy.resource.namespaced:
        return
    stored = backend.storage.get(key_of(NAMESPACES, "", target.namespace))
    if stored is None:
        raise errors.not_found(NAMESPACES.plural, target.namespace)
    if namespaces.is_terminating(decode(stored)):
        why = f"unable to create new content in namespace {target.namespace}"
        why += " because it is being terminated"
        cause = Cause("NamespaceTerminating", why, "metadata.namespace")
        raise target.forbidden(name, why, (cause,))
