"""Change an object, or one subresource of it, by a replacement (PUT) or by a patch.

Optimistic: the change is computed from the current object and stored if that is still current;
otherwise it is computed again, and refused then if the client named a version. Also reads patch
bodies: which media type means what, and which errors each can have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from orch.server import turns
from orch.server.objects import metadata, validation
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.document import Document, ObjectTarget, decode, encode, same
from orch.server.objects.options import NO_OPTIONS, WriteOptions
from orch.server.request import media
from orch.server.request.bodies import (
    MAX_PATCH_VALUES,
    MAX_VALUES,
    drop_nulls,
    loads,
    require_bounded,
    too_large,
    values_in,
)
from orch.server.storage.base import Stored, Write
from orch.server.strategy import namespaces
from orch.server.strategy.base import keep
from orch.wire import causes
from orch.wire.errors import ApiError, bad_request
from orch.wire.patch import json_patch, merge_keys, patch, strategic_patch
from orch.wire.records.kinds import Resource

# Makes the new document from the current one, which it must not change.
Transform = Callable[[Document], Document]


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
) -> Stored:
    """Returns the changed object; ApiError 404, 409, 422 and those of `change`, 400 for a field of
    a wrong type in an object that was not `patched`, but sent.
    """
    changed = partial(_changed, target, change, patched)

    async def write(stored: Stored) -> Stored:
        new, old = await turns.compute(partial(changed, stored), stored.data)
        backend.admit(target, new, old)
        if same(new, old):
            return stored
        data = encode(new)
        if len(data) > len(stored.data):
            require_bounded(data)
        if not options.dry_run and _may_go(target, new):
            return await backend.storage.delete(stored.key, stored.revision)
        async with backend.charge(target, new, Write(stored.key, data, stored.revision)) as charges:
            if options.dry_run:
                return Stored(stored.key, stored.revision, data)
            return await backend.storage.update(stored.key, data, stored.revision, charges)

    return await backend.write_current(target, write)


def _changed(
    target: ObjectTarget, change: Transform, patched: bool, stored: Stored
) -> tuple[Document, Document]:
    """The document to store and the stored one."""
    old = decode(stored)
    sent = change(old)
    validation.check_shape(target.strategy, sent, patched=patched)
    _check_preconditions(target, sent, old)
    new = _prepared(target, sent, old)
    validation.check(target.strategy, new, old)
    return new, old


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
    if media_type not in media.PATCHES:
        raise media.unknown_format(media.PATCHES)
    most = MAX_PATCH_VALUES if media_type == media.JSON_PATCH else MAX_VALUES
    data: Any = loads(body, "error decoding patch", most)
    is_large = values_in(body) > turns.SMALL
    if media_type == media.JSON_PATCH:
        _check_operations(data)
    elif not isinstance(data, dict):
        raise bad_request("error decoding patch: the patch must be a JSON object")

    def change(current: Document) -> Document:
        try:
            changed = _apply(resource, media_type, current, data)
            if is_large and patch.count_values(changed) > MAX_VALUES:
                raise too_large(f"would have more than {MAX_VALUES} values")
        except patch.PatchError as error:
            raise _failed(error) from None
        if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict):
            raise bad_request("the patch leaves no object with metadata")
        document: Document = drop_nulls(changed)
        _check_identity(resource, current, document)
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
