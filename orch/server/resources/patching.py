"""A patch body as a change: which media type means what, and which errors it can have; pure."""

from __future__ import annotations

from typing import Any

import orjson

from orch.server import media
from orch.server.bodies import drop_nulls
from orch.server.resources.document import Document
from orch.server.resources.modify import Change
from orch.wire import merge_keys, patch
from orch.wire.errors import ApiError, bad_request
from orch.wire.kinds import Resource

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
ACCEPTED = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)
MAX_OPERATIONS = 10_000
_REASONS = {400: "BadRequest", 413: "RequestEntityTooLarge"}


def change_of(resource: Resource, media_type: str, body: bytes) -> Change:
    """The change a patch body describes; ApiError 400, 413, 415 here and 422 when it is applied."""
    if media_type not in ACCEPTED:
        raise media.unknown_format(ACCEPTED)
    try:
        data: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    if media_type == JSON_PATCH:
        _check_operations(data)
    elif not isinstance(data, dict):
        raise bad_request("error decoding patch: the patch must be a JSON object")

    def change(current: Document) -> Document:
        try:
            changed = _apply(resource, media_type, current, data)
        except patch.PatchError as error:
            raise _failed(error) from None
        if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict):
            raise bad_request("the patch leaves no object with metadata")
        document: Document = drop_nulls(changed)
        _check_identity(resource, current, document)
        return document

    return change


def _apply(resource: Resource, media_type: str, current: Document, data: Any) -> Any:
    if media_type == JSON_PATCH:
        return patch.apply_json_patch(current, data)
    if media_type == MERGE_PATCH:
        return patch.apply_merge_patch(current, data)
    schema = merge_keys.schema_of(resource.api_version, resource.kind)
    return patch.apply_strategic_patch(current, data, schema)


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
    """It names no object, as in the reference: of an invalid one `kubectl` shows no message."""
    if error.code != 422:
        return ApiError(error.code, _REASONS[error.code], str(error))
    return ApiError(
        422,
        "Invalid",
        f"the server rejected our request due to an error in our request: {error}",
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
