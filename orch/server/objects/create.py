"""Create an object: prepare, validate, admit, store."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from orch.server import turns
from orch.server.objects import field_managers, metadata, validation
from orch.server.objects.backend import TRIES, Backend
from orch.server.objects.document import (
    Attempt,
    Document,
    ObjectTarget,
    decode,
    encode_as,
    key_of,
)
from orch.server.objects.options import NO_OPTIONS, WriteOptions
from orch.server.storage.base import KeyExists, RevisionMismatch, Stored, Write
from orch.server.strategy import namespaces
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
    target = target._replace(dry_run=options.dry_run)
    metadata.fit_to_endpoint(target.strategy.resource, target.namespace, document)
    if target.name:
        metadata.fit_to_name(target.name, document)
    sent = document["metadata"]
    applied = sent.get(field_managers.FIELD)
    if metadata.named_version(sent):
        raise bad_request("resourceVersion should not be set on objects to be created")
    compute = turns.aside if target.strategy.is_costly else turns.compute
    await compute(partial(validation.check_shape, target.strategy, document))
    now = times.format_time(backend.now())

    def complete(document: Document) -> None:
        target.strategy.prepare_create(document)
        validation.check(target.strategy, document)
        turns.give_way()
        field_managers.record_creation(target, options, document, applied, now)

    for name in _names(backend, sent):
        metadata.stamp_new(document, name=name, uid=backend.new_uid(), created=now)
        await compute(partial(complete, document))
        admitted = await _admitted(backend, target, document, options)
        stored = await _try_create(backend, target, name, admitted, options)
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


async def _admitted(
    backend: Backend, target: ObjectTarget, document: Document, options: WriteOptions
) -> Document:
    """The document as the steps of admission and webhooks leave it; ApiError."""
    if not options.dry_run:
        await backend.before_creation(backend, target, document)
    await backend.admitted(target, document, None)
    if not backend.concerns_webhooks(target, "CREATE"):
        return document
    _require_namespace(backend, target, document["metadata"]["name"])
    attempt = Attempt("CREATE", document, dry_run=options.dry_run)
    settle = partial(_settled, backend, target, document)
    return await backend.ask_webhooks(target, attempt, settle) or document


async def _settled(
    backend: Backend, target: ObjectTarget, before: Document, changed: Document
) -> Document:
    """What webhooks made of a new object, fit to be stored."""

    def fit() -> Document:
        fitted = metadata.as_before(changed, before)
        validation.check_shape(target.strategy, fitted, patched=True)
        target.strategy.prepare_create(fitted)
        validation.check(target.strategy, fitted)
        return fitted

    fitted = await (turns.aside if target.strategy.is_costly else turns.compute)(fit)
    await backend.admitted(target, fitted, None)
    return fitted


async def _try_create(
    backend: Backend, target: ObjectTarget, name: str, document: Document, options: WriteOptions
) -> Stored | None:
    """None when the name is taken."""
    resource = target.strategy.resource
    key, data = key_of(resource, target.namespace, name), encode_as(resource, document)
    field_managers.require_storable(document, data)
    for _ in range(TRIES):
        try:
            async with backend.charge(target, document, Write(key, data, 0)) as charges:
                # No await from here to the queue of storage: a namespace found active now cannot be
                # emptied before this object is visible in it (see `controllers.namespaces`).
                # Servers that share a storage see that late: it is written only while it is so.
                namespace = _require_namespace(backend, target, name)
                _require_served(backend, target)
                if options.dry_run:
                    return None if backend.storage.get(key) else Stored(key, 0, data)
                return await backend.storage.create(key, data, charges, namespace)
        except KeyExists:
            return None
        except RevisionMismatch:
            continue  # another server charged the same quota, or changed the namespace
    raise target.conflict()


def _taken(target: ObjectTarget, sent: metadata.Metadata) -> ApiError:
    resource = target.strategy.resource
    error = errors.already_exists(resource.plural, sent.get("name", ""), resource.group)
    if sent.get("generateName") and not target.name:
        error.message += ", the server was not able to generate a unique name for the object"
        error.retry_after_s = 1
    return error


def _require_namespace(backend: Backend, target: ObjectTarget, name: str) -> Stored | None:
    """The namespace, which is active; None where the kind has none."""
    if not target.strategy.resource.namespaced:
        return None
    stored = backend.storage.get(key_of(NAMESPACES, "", target.namespace))
    if stored is None:
        raise errors.not_found(NAMESPACES.plural, target.namespace)
    if namespaces.is_terminating(decode(stored)):
        why = f"unable to create new content in namespace {target.namespace}"
        why += " because it is being terminated"
        cause = Cause("NamespaceTerminating", why, "metadata.namespace")
        raise target.forbidden(name, why, (cause,))
    return stored


def _require_served(backend: Backend, target: ObjectTarget) -> None:
    """A kind that users define may end meanwhile: its last objects are being deleted then."""
    resource = target.strategy.resource
    found = backend.kinds.find(resource.group, resource.version, resource.plural)
    if found is None or "create" not in found.resource.verbs:
        text = f"no {resource.plural} can be created: their definition is being deleted"
        raise ApiError(405, "MethodNotAllowed", text)
