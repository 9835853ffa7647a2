"""The AdmissionReview that a webhook is sent, and the meaning of its answer; pure.

An answer is believed only if it is an AdmissionReview of the version and with the uid that were
sent. Its bytes, values, patch, warnings and annotations are bounded; texts are cut, everything else
is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from orch.server.admission.webhooks.hooks import Hook, Name
from orch.server.objects.document import Attempt, Document, ObjectTarget, converted
from orch.server.request.bodies import MAX_PATCH_VALUES, MAX_VALUES, drop_nulls, require_bounded
from orch.wire import raw
from orch.wire.errors import ApiError
from orch.wire.names import REVIEW_API_VERSION
from orch.wire.patch import json_patch
from orch.wire.patch.patch import PatchError, count_values
from orch.wire.records import aliases
from orch.wire.records.authentication import user_info
from orch.wire.records.kinds import NAMESPACES, Resource

MAX_ANSWER_BYTES = 3 * 1024 * 1024
MAX_OPERATIONS = 10_000
MAX_WARNINGS = 16
MAX_ANNOTATIONS = 16
_TEXT_MAX = 1024  # characters of a message, warning or annotation
_KEY_MAX = 128
_KIND = "AdmissionReview"
_OPTIONS = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
_CODES = range(400, 600)


class AnswerRefused(Exception):
    """An answer that cannot be believed or followed; the text says why."""


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """`patch` is empty where nothing is to change; `code`, `message`, `reason` are of a refusal."""

    allowed: bool
    code: int = 0
    message: str = ""
    reason: str = ""
    patch: tuple[Any, ...] = ()
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def question(target: ObjectTarget, attempt: Attempt, asked: Name, uid: str) -> bytes:
    """The AdmissionReview of a request, under this name of its resource."""
    resource = target.strategy.resource
    own = resource.api_version, asked.form.kind
    api_version, kind = own if attempt.kind is None else attempt.kind
    if api_version == resource.api_version:
        api_version = _api_version(asked)
    kind_group, _, kind_version = api_version.rpartition("/")
    shown = partial(_shown_as, resource, asked)
    name = target.name or raw.text(attempt.new, "metadata", "name")
    of_kind = {"group": kind_group, "version": kind_version, "kind": kind}
    of_resource = {"group": asked.group, "version": asked.version, "resource": resource.plural}
    requested = {"group": target.alias or resource.group, "version": resource.version}
    part = {"subResource": target.subresource, "requestSubResource": target.subresource}
    options = {"kind": _OPTIONS.get(attempt.operation, ""), "apiVersion": "meta.k8s.io/v1"}
    if attempt.dry_run:
        options["dryRun"] = ["All"]  # type: ignore[assignment]
    request = {
        "uid": uid,
        "kind": of_kind,
        "resource": of_resource,
        "requestKind": of_kind if attempt.kind else {**of_kind, **requested},
        "requestResource": {**of_resource, **requested},
        **(part if target.subresource else {}),
        "name": name,
        "namespace": name if resource is NAMESPACES else target.namespace,
        "operation": attempt.operation,
        "userInfo": user_info(target.identity).to_wire(),
        "object": None if attempt.new is None else shown(attempt.new),
        "oldObject": None if attempt.old is None else shown(attempt.old),
        "dryRun": attempt.dry_run,
        "options": options if options["kind"] else None,
    }
    return orjson.dumps({"kind": _KIND, "apiVersion": REVIEW_API_VERSION, "request": request})


def _api_version(name: Name) -> str:
    return f"{name.group}/{name.version}" if name.group else name.version


def _shown_as(resource: Resource, name: Name, document: Document) -> Document:
    """An object of this server as one under the name; versions differ in nothing else."""
    form = name.form
    document = converted(document, resource, form)
    if name.group != form.group:
        return aliases.to_upstream(document)
    if name.version == form.version or document.get("apiVersion") != form.api_version:
        return document
    return {**document, "apiVersion": _api_version(name)}


def _taken_back(resource: Resource, name: Name, document: Document) -> Document:
    """An object under the name as one of this server; AnswerRefused."""
    form = name.form
    if name.group != form.group:
        document = aliases.to_own(document)
    elif document.get("apiVersion") == _api_version(name):
        document = {**document, "apiVersion": form.api_version}
    if form != resource and document.get("apiVersion") != form.api_version:
        raise AnswerRefused("its patch changes apiVersion")
    return converted(document, form, resource)


def read(hook: Hook, body: bytes, uid: str) -> WebhookAnswer:
    """The verdict in an answer; AnswerRefused."""
    answer = _decoded(body, "the answer", MAX_VALUES)
    if not isinstance(answer, dict):
        raise AnswerRefused("the answer is not an object")
    for name, wanted in (("kind", _KIND), ("apiVersion", REVIEW_API_VERSION)):
        if answer.get(name) != wanted:
            raise AnswerRefused(f"{name} is {_shown(answer.get(name))}, expected {wanted!r}")
    response = answer.get("response")
    if not isinstance(response, dict):
        raise AnswerRefused("there is no response in it")
    if response.get("uid") != uid:
        raise AnswerRefused(f"response.uid is {_shown(response.get('uid'))}, expected {uid!r}")
    allowed = response.get("allowed", False)
    if not isinstance(allowed, bool):
        raise AnswerRefused("response.allowed is neither true nor false")
    status = raw.mapping(response, "status")
    return WebhookAnswer(
        allowed,
        raw.number(status, "code"),
        _cut(raw.text(status, "message")),
        _cut(raw.text(status, "reason")),
        _patch(hook, response) if allowed else (),
        _warnings(response.get("warnings")),
        _annotations(response.get("auditAnnotations")),
    )


def _decoded(body: bytes, what: str, most: int) -> Any:
    try:
        require_bounded(body, most)
        return orjson.loads(body)
    except ApiError as error:
        raise AnswerRefused(f"{what} is too large: {error}") from None
    except orjson.JSONDecodeError as error:
        raise AnswerRefused(f"{what} is not JSON: {error}") from None


def _patch(hook: Hook, response: Mapping[str, Any]) -> tuple[Any, ...]:
    text, kind = response.get("patch"), response.get("patchType")
    if not text and not kind:
        return ()
    if not hook.is_mutating:
        raise AnswerRefused("a validating webhook may not set response.patch or patchType")
    if kind != "JSONPatch":
        raise AnswerRefused(f"response.patchType is {_shown(kind)}, expected 'JSONPatch'")
    if not isinstance(text, str):
        raise AnswerRefused("response.patch is not a text")
    try:
        body = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AnswerRefused(f"response.patch is not base64: {error}") from None
    operations = _decoded(body, "the patch", MAX_PATCH_VALUES)
    if not isinstance(operations, list) or len(operations) > MAX_OPERATIONS:
        raise AnswerRefused(f"the patch is no list of at most {MAX_OPERATIONS} operations")
    return tuple(operations)


def _warnings(given: Any) -> tuple[str, ...]:
    texts = given if isinstance(given, list) else []
    return tuple(_cut(text) for text in texts[:MAX_WARNINGS] if isinstance(text, str) and text)


def _annotations(given: Any) -> dict[str, str]:
    pairs = given.items() if isinstance(given, dict) else ()
    fitting = [(key, value) for key, value in pairs if key and isinstance(value, str)]
    return {key[:_KEY_MAX]: _cut(value) for key, value in fitting[:MAX_ANNOTATIONS]}


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"


def _shown(value: Any) -> str:
    return repr(value)[:100]


def refusal(hook: Hook, verdict: WebhookAnswer) -> ApiError:
    """What the client hears of a webhook's refusal."""
    text = f'admission webhook "{hook.name}" denied the request'
    why = verdict.message or verdict.reason
    text = f"{text}: {why}" if why else f"{text} without explanation"
    code = verdict.code if verdict.code in _CODES else 400 if verdict.code < 400 else 500
    return ApiError(code, verdict.reason or ("Forbidden" if code == 403 else ""), text)


def copies(verdict: WebhookAnswer) -> bool:
    """Whether its patch may make an object that is much larger than the patch."""
    return any(isinstance(each, dict) and each.get("op") == "copy" for each in verdict.patch)


def patched(
    resource: Resource, asked: Name, document: Document | None, verdict: WebhookAnswer
) -> Document:
    """The document with the patch of a verdict about it under that name; AnswerRefused."""
    if document is None:
        raise AnswerRefused("it attempted to modify the object of a deletion, which has none")
    shown = _shown_as(resource, asked, document)
    try:
        changed = json_patch.apply_json_patch(shown, list(verdict.patch))
        if count_values(changed) > 4 * MAX_VALUES:
            raise AnswerRefused(f"its patch makes an object of over {4 * MAX_VALUES} values")
        if not isinstance(changed, dict) or not isinstance(changed.get("metadata"), dict | None):
            raise AnswerRefused("its patch leaves no object with metadata")
        result: Document = drop_nulls(changed)
    except (PatchError, ApiError) as error:
        raise AnswerRefused(f"its patch cannot be applied: {error}") from None
    return _taken_back(resource, asked, result)
