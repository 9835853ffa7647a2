"""Request bodies in protobuf, which newer clients send for some kinds, decoded into JSON data.

The messages are in `kinds.proto`. Fields that it does not name are skipped, as protobuf demands, so
newer clients are understood in part. Answers are always JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from orch.wire import times
from orch.wire.errors import ApiError, bad_request
from orch.wire.protobuf import require_few_fields

_Form = Callable[[Any], Any]
MAGIC = b"k8s\x00"
KINDS = (
    "Binding", "CertificateSigningRequest", "ClusterRole", "ClusterRoleBinding", "ConfigMap",
    "DeleteOptions", "Eviction", "Lease", "LocalSubjectAccessReview", "Namespace", "Pod",
    "PodTemplate", "PriorityClass", "ResourceQuota", "Role", "RoleBinding", "RuntimeClass",
    "Secret", "SelfSubjectAccessReview", "SelfSubjectReview", "SelfSubjectRulesReview",
    "ServiceAccount", "SubjectAccessReview", "TokenRequest", "TokenReview",
)  # fmt: skip
INLINED = ("ephemeralContainerCommon", "handler", "localObjectReference", "volumeSource")
_MAX_FIELDS = 20_000  # each takes microseconds, and up to 300 bytes of memory in the parser


def decode(body: bytes) -> dict[str, Any]:
    """The object in the envelope, as JSON data with its kind and apiVersion.

    ApiError 400 for what is not protobuf, 415 for a kind that is accepted as JSON only.
    """
    if not body.startswith(MAGIC):
        raise bad_request("the body is not in the protobuf envelope its content type promises")
    from google.protobuf.message import DecodeError  # 7 MB: loaded when a client speaks it

    from orch.server.request import kinds_pb2

    try:
        envelope = _parse(kinds_pb2.Unknown, body[len(MAGIC) :])
        kind = envelope.typeMeta.kind
        if kind in KINDS:
            message = _parse(getattr(kinds_pb2, kind), envelope.raw)
            return {**_document(envelope.typeMeta), **_document(message)}
    except (DecodeError, ValueError, OverflowError, OSError) as error:
        raise bad_request(f"the protobuf body cannot be decoded: {error}") from None
    raise ApiError(
        415,
        "UnsupportedMediaType",
        f"objects of kind {kind!r} are not accepted as protobuf: send application/json",
    )


# ---- messages to JSON data


def _document(message: Any) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field, value in message.ListFields():
        written = _writer(field)(value)
        if field.name in INLINED and isinstance(written, dict):
            document.update(written)
        elif written is not None and written != "":
            document[field.name] = written
    return document


@cache
def _writer(field: Any) -> _Form:
    """Of the values of one field of `kinds.proto`."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = _writer(kind.fields_by_name["value"])
        return lambda entries: {key: inner(entries[key]) for key in sorted(entries)}
    form: _Form = _FORMS.get(kind.name, _document) if kind is not None else _as_it_is
    if field.type == field.TYPE_BYTES:
        form = _base64
    if field.is_repeated:
        return lambda values: [form(value) for value in values]
    return form


def _as_it_is(value: Any) -> Any:
    return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _time(message: Any, form: Callable[[datetime], str]) -> str | None:
    if not message.ListFields():
        return None
    whole = datetime.fromtimestamp(message.seconds, UTC)
    return form(whole.replace(microsecond=message.nanos // 1000))


_FORMS: Mapping[str, _Form] = {
    "Time": partial(_time, form=times.format_time),
    "MicroTime": partial(_time, form=times.format_micro_time),
    "Quantity": lambda message: message.string,
    "IntOrString": lambda message: message.strVal if message.type else message.intVal,
    "ExtraValue": lambda message: list(message.items),
}


def _parse(message: Any, data: bytes) -> Any:
    require_few_fields(data, message.DESCRIPTOR, _MAX_FIELDS)
    return message.FromString(data)
