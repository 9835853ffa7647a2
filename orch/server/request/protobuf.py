"""Request bodies in protobuf, which newer clients send for some kinds, decoded into JSON data.

The messages are in `kinds.proto`. Fields that it does not name are skipped, as protobuf demands, so
newer clients are understood in part. Answers are always JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from orch.wire import times
from orch.wire.errors import ApiError, bad_request

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
_VARINT, _BYTES = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}  # wire type → length


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


# ---- checks before parsing


def _parse(message: Any, data: bytes) -> Any:
    _check(data, message.DESCRIPTOR)
    return message.FromString(data)


def _check(data: bytes, message: Any) -> None:
    """ValueError for too many fields, and for a field of another wire type than its message says.

    The parser accepts both: it allocates every field, and skips the latter as unknown. Depth needs
    no limit: no message of `kinds.proto` can contain itself.
    """
    count, waiting = 0, [(memoryview(data), message)]
    while waiting:
        view, message = waiting.pop()
        known = message.fields_by_number
        for number, wire_type, value in _fields(view):
            count += 1
            if count > _MAX_FIELDS:
                raise ValueError(f"it has more than {_MAX_FIELDS} fields")
            field = known.get(number)
            if field is None:
                if message.GetOptions().map_entry:  # the parser would drop the whole entry
                    raise ValueError(f"an entry of {message.name} has an unknown field {number}")
                continue
            is_bytes = field.cpp_type in (field.CPPTYPE_STRING, field.CPPTYPE_MESSAGE)
            if wire_type != (_BYTES if is_bytes else _VARINT):
                raise ValueError(f"{message.name}.{field.name} has wire type {wire_type}")
            if field.message_type is not None:
                waiting.append((value, field.message_type))


def _fields(view: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Number, wire type, and the bytes of all but varints."""
    position = 0
    while position < len(view):
        tag, position = _varint(view, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            length, (_, position) = 0, _varint(view, position)
        elif wire_type == _BYTES:
            length, position = _varint(view, position)
        elif wire_type in _FIXED_BYTES:
            length = _FIXED_BYTES[wire_type]
        else:
            raise ValueError(f"unknown wire type {wire_type}")
        if position + length > len(view):
            raise ValueError("the message is cut short")
        yield tag >> 3, wire_type, view[position : position + length]
        position += length


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        if position >= len(view):
            raise ValueError("the message is cut short")
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number is longer than 64 bits")
