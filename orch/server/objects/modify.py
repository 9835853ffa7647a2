"""Change an object, or one subresource of it, by a replacement (PUT) or by a patch.

Optimistic: the change is computed from the current object and stored if that is still current;
otherwise it is computed again, and refused then if the client named a version. Also reads patch
bodies: which media type means what, and which errors each can have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from orch.server import turns
from orch.server.objects import field_managers, metadata, validation
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.document import (
    Attempt,
    Document,
    ObjectTarget,
    decode_as,
    encode_as,
    is_in_version,
    same,
)
from orch.server.objects.options import NO_OPTIONS, WriteOptions
from orch.server.request import media
from orch.server.request.bodies import (
    MAX_PATCH_VALUES,
    MAX_VALUES,
    drop_nulls,
    loads,
    too_large,
    values_in,
)
from orch.server.storage.base import Stored, Write
from orch.server.strategy import namespaces
from orch.server.strategy.base import keep
from orch.wire import causes, times
from orch.wire.errors import ApiError, bad_request
from orch.wire.patch import json_patch, merge_keys, patch, strategic_patch
from orch.wire.records.kinds import Resource

# Makes the new document from the current one, which it must not change.
Transform = Callable[[Document], Document]


class Part(NamedTuple):
    """What an object looks like through a subresource that has a kind of its own: `of` an object,
    and the object with a changed one `put` into it. Webhooks see that.
    """

    kind: tuple[str, str]  # version and kind
    of: Callable[[Document], Document]
    put: Callable[[Document, Document], Document]


async def replace(
    backend: Backend, target: ObjectTarget, document: Document, options: WriteOptions
) -> tuple[Stored, bool]:
    """PUT: returns the stored object and whether it was created. `document` may be changed."""
    resource = target.strategy.resource
    metadata.fit_to_endpoint(resource, target.namespace, document)
    metadata.fit_to_name(target.name, document)
    exists = backend.storage.get(target.key) is not None
    if not exists and resource.create_on_update and not target.subresource:
        document["metadata"].pop("resourceVersion", None)
        return await create(backend, target, document, options), True
    return await modify(backend, target, lambda _current: document, options, patched=False), False


async def modify(
    backend: Backend,
    target: ObjectTarget,
    change: Transform,
    options: WriteOptions = NO_OPTIONS,
    *,
    patched: bool = True,
    part: Part | None = None,
) -> Stored:
    """Returns the changed object; ApiError 404, 409, 422 and those of `change`, 400 for a field of
    a wrong type in an object that was not `patched`, but sent.
    """
    now = times.format_time(backend.now())
    resource = target.strategy.resource

    def changed(stored: Stored) -> tuple[Document, Document]:
        old = decode_as(resource, stored)
        turns.give_way()
        sent = change(old)
        new = _changed(target, sent, old, patched=patched)
        turns.give_way()
        field_managers.record_change(target, options, sent, new, old, now)
        return new, old

    async def write(stored: Stored) -> Stored:
        if target.strategy.is_costly:
            new, old = await turns.aside(partial(changed, stored))
        else:
            new, old = await turns.compute(partial(changed, stored), stored.data)
        await backend.admitted(target, new, old)
        if backend.concerns_webhooks(target, "UPDATE"):
            new = await _asked(backend, target, new, old, options, part)
        if same(new, old) and is_in_version(resource, stored):
            return stored
        data = encode_as(resource, new)
        if len(data) > len(stored.data):
            field_managers.require_storable(new, data)
        if not options.dry_run and _may_go(target, new):
            return await backend.storage.delete(stored.key, stored.revision)
        async with backend.charge(target, new, Write(stored.key, data, stored.revision)) as charges:
            if options.dry_run:
                return Stored(stored.key, stored.revision, data)
            return await backend.storage.update(stored.key, data, stored.revision, charges)

    return await backend.write_current(target, write)


async def _asked(
    backend: Backend,
    target: ObjectTarget,
    new: Document,
    old: Document,
    options: WriteOptions,
    part: Part | None,
) -> Document:
    """The changed object as webhooks leave it; ApiError."""
    settle = partial(_settled, backend, target, new, old)
    if part is None:
        attempt = Attempt("UPDATE", new, old, options.dry_run)
        return await backend.ask_webhooks(target, attempt, settle) or new
    whole = new

    async def settle_part(changed: Document) -> Document:
        nonlocal whole
        whole = await settle(part.put(whole, changed))
        return part.of(whole)

    attempt = Attempt("UPDATE", part.of(new), part.of(old), options.dry_run, part.kind)
    await backend.ask_webhooks(target, attempt, settle_part)
    return whole


async def _settled(
    backend: Backend, target: ObjectTarget, before: Document, old: Document, changed: Document
) -> Document:
    """What webhooks made of a changed object, fit to be stored."""

    def fit() -> Document:
        fitted = metadata.as_before(changed, before)
        validation.check_shape(target.strategy, fitted, old, patched=True)
        fitted = _prepared(target, fitted, old)
        field_managers.keep(fitted, before)
        validation.check(target.strategy, fitted, old)
        return fitted

    fitted = await (turns.aside if target.strategy.is_costly else turns.compute)(fit)
    await backend.admitted(target, fitted, old)
    return fitted


def _changed(target: ObjectTarget, sent: Document, old: Document, *, patched: bool) -> Document:
    """The document to store."""
    turns.give_way()
    validation.check_shape(target.strategy, sent, old, patched=patched)
    _check_preconditions(target, sent, old)
    new = _prepared(target, sent, old)
    turns.give_way()
    validation.check(target.strategy, new, old)
    return new


def _check_preconditions(target: ObjectTarget, sent: Document, old: Document) -> None:
    """ApiError 409 when the client names another version or another uid, 422 when it must name one
    and does not.
    """
    sent_metadata: dict[str, Any] = sent["metadata"]
    stored_metadata = old["metadata"]
    uid = sent_metadata.get("uid")
    if uid and uid != stored_metadata["uid"]:
        raise target.conflict(
            f"Precondition failed: UID in precondition: {uid}, UID in object meta:"
            f" {stored_metadata['uid']}"
        )
    version = metadata.named_version(sent_metadata)
    if version and version != stored_metadata["resourceVersion"]:
        raise target.conflict()
    if not version and not target.strategy.resource.unconditional_update:
        why = "must be specified for an update"
        cause = causes.invalid_value("metadata.resourceVersion", 0, why)
        raise validation.refusal(target.strategy, target.name, (cause,))


def _prepared(target: ObjectTarget, sent: Document, old: Document) -> Document:
    """The document to store: the client's changes, without those to fields it does not own."""
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


def _may_go(target: ObjectTarget, document: Document) -> bool:
    """Whether nothing holds back the object's deletion any longer."""
    meta = document["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    if meta.get("deletionGracePeriodSeconds"):
        return False
    return not namespaces.holders_of(target.strategy.resource, document)


MAX_OPERATIONS = 10_000
_REASONS = {400: "BadRequest", 413: "RequestEntityTooLarge"}


def change_of(resource: Resource, media_type: str, body: bytes) -> Transform:
    """The change a patch body describes; ApiError 400, 413, 415 here and 422 when it is applied."""
    if media_type not in media.PATCHES or media_type == media.APPLY_PATCH:
        raise media.unknown_format(media.PATCHES)
    most = MAX_PATCH_VALUES if media_type == media.JSON_PATCH else MAX_VALUES
    data: Any = loads(body, "error decoding patch", most)
    is_large = values_in(body) > turns.SMALL
    sets_managers = field_managers.FIELD.encode() in body or b"\\u" in body
    if media_type == media.JSON_PATCH:
        _check_operations(data)
    elif not isinstance(data, dict):
        raise bad_request("error decoding patch: the patch must be a JSON object")

    def change(current: Document) -> Document:
        hidden = current if sets_managers else field_managers.plain(current)
        try:
            changed = _apply(resource, media_type, hidden, data)
            if is_large and patch.count_values(field_managers.plain(changed)) > MAX_VALUES:
                raise too_large(f"would have more than {MAX_VALUES} values")
        except patch.PatchError as error:
            raise _failed(error) from None
        if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict):
            raise bad_request("the patch leaves no object with metadata")
        document: Document = drop_nulls(changed)
        _check_identity(resource, current, document)
        if hidden is not current:
            document["metadata"][field_managers.FIELD] = current["metadata"][field_managers.FIELD]
        return document

    return change


def _apply(resource: Resource, media_type: str, current: Document, data: Any) -> Any:
    if media_type == media.JSON_PATCH:
        return json_patch.apply_json_patch(current, data)
    if media_type == media.MERGE_PATCH:
        return patch.apply_merge_patch(current, data)
    schema = merge_keys.schema_of(resource.api_version, resource.kind)
    return strategic_patch.apply_strategic_patch(current, data, schema)


def _check_operations(data: Any) -> None:
    if not isinstance(data, list):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(data) > MAX_OPERATIONS:
        raise ApiError(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(data)}",
        )


def _failed(error: patch.PatchError) -> ApiError:
    """Names no object, as in the reference: else `kubectl` would not show the message."""
    if error.code != 422:
        return ApiError(error.code, _REASONS[error.code], str(error))
    return ApiError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {error}"
    )


def _check_identity(resource: Resource, current: Document, changed: Document) -> None:
    for name in ("kind", "apiVersion"):
        if changed.get(name) != current[name]:
            raise bad_request(
                f"the patch changes {name} of the {resource.kind} to {changed.get(name)!r}"
            )
    before, after = current["metadata"], changed["metadata"]
    for name in ("name", "namespace"):
        if after.get(name) != before.get(name):
            raise bad_request(
                f"the patch changes metadata.{name} from {before.get(name)!r}"
                f" to {after.get(name)!r}"
            )
