"""Request bodies in protobuf, as newer clients send them for a few kinds, read into JSON data.

A generic reader of the wire format over field tables; what a table does not name is skipped, as
protobuf demands, so newer clients are understood as far as this server knows the record. Field
numbers are upstream's (reference/apiserver.md §1.6). Answers are always JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orch.wire import times
from orch.wire.errors import ApiError, bad_request

MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Field:
    """`read` makes JSON data of the wire value; `many` collects a list, `pairs` a map."""

    name: str
    read: Callable[[Any], Any]
    many: bool = False
    pairs: bool = False


Message = Mapping[int, Field]


def _text(value: Any) -> str:
    return bytes(value).decode()


def _int64(value: Any) -> int:
    return value - 2**64 if value >= 2**63 else int(value)


def _message(table: Message) -> Callable[[Any], dict[str, Any]]:
    return lambda value: read_message(value, table)


def _pair(value: Any) -> tuple[str, str]:
    entry = read_message(value, {1: Field("key", _text), 2: Field("value", _text)})
    return entry.get("key", ""), entry.get("value", "")


def _bytes_pair(value: Any) -> tuple[str, str]:
    """An entry of a map whose values are bytes, which JSON writes as base64."""
    entry = read_message(value, {1: Field("key", _text), 2: Field("value", bytes)})
    return entry.get("key", ""), base64.b64encode(entry.get("value", b"")).decode()


def _moment(value: Any) -> datetime | None:
    raw = read_message(value, {1: Field("s", _int64), 2: Field("n", _int64)})
    if not raw:
        return None
    whole = datetime.fromtimestamp(raw.get("s", 0), UTC)
    return whole.replace(microsecond=raw.get("n", 0) // 1000)


def _time(value: Any) -> str | None:
    moment = _moment(value)
    return None if moment is None else times.format_time(moment)


def _micro_time(value: Any) -> str | None:
    moment = _moment(value)
    return None if moment is None else times.format_micro_time(moment)


_OWNER = {
    1: Field("kind", _text), 3: Field("name", _text), 4: Field("uid", _text),
    5: Field("apiVersion", _text), 6: Field("controller", bool),
    7: Field("blockOwnerDeletion", bool),
}  # fmt: skip
_OBJECT_META = {
    1: Field("name", _text),
    2: Field("generateName", _text),
    3: Field("namespace", _text),
    5: Field("uid", _text),
    6: Field("resourceVersion", _text),
    7: Field("generation", _int64),
    8: Field("creationTimestamp", _time),
    9: Field("deletionTimestamp", _time),
    10: Field("deletionGracePeriodSeconds", _int64),
    11: Field("labels", _pair, pairs=True),
    12: Field("annotations", _pair, pairs=True),
    13: Field("ownerReferences", _message(_OWNER), many=True),
    14: Field("finalizers", _text, many=True),
}
_METADATA = Field("metadata", _message(_OBJECT_META))
_PRECONDITIONS = {1: Field("uid", _text), 2: Field("resourceVersion", _text)}
_DELETE_OPTIONS = {
    1: Field("gracePeriodSeconds", _int64),
    2: Field("preconditions", _message(_PRECONDITIONS)),
    3: Field("orphanDependents", bool),
    4: Field("propagationPolicy", _text),
    5: Field("dryRun", _text, many=True),
}
_NAMESPACE = {
    1: _METADATA,
    2: Field("spec", _message({1: Field("finalizers", _text, many=True)})),
    3: Field("status", _message({1: Field("phase", _text)})),
}
_LEASE_SPEC = {
    1: Field("holderIdentity", _text),
    2: Field("leaseDurationSeconds", _int64),
    3: Field("acquireTime", _micro_time),
    4: Field("renewTime", _micro_time),
    5: Field("leaseTransitions", _int64),
    6: Field("strategy", _text),
    7: Field("preferredHolder", _text),
}
_BINDING_TARGET = {
    1: Field("kind", _text), 2: Field("namespace", _text), 3: Field("name", _text),
    4: Field("uid", _text), 5: Field("apiVersion", _text),
}  # fmt: skip
_OBJECT_REFERENCE = {
    **_BINDING_TARGET, 6: Field("resourceVersion", _text), 7: Field("fieldPath", _text),
}  # fmt: skip
_CONFIG_MAP = {
    1: _METADATA,
    2: Field("data", _pair, pairs=True),
    3: Field("binaryData", _bytes_pair, pairs=True),
    4: Field("immutable", bool),
}
_SECRET = {
    1: _METADATA,
    2: Field("data", _bytes_pair, pairs=True),
    3: Field("type", _text),
    4: Field("stringData", _pair, pairs=True),
    5: Field("immutable", bool),
}
_SERVICE_ACCOUNT = {
    1: _METADATA,
    2: Field("secrets", _message(_OBJECT_REFERENCE), many=True),
    3: Field("imagePullSecrets", _message({1: Field("name", _text)}), many=True),
    4: Field("automountServiceAccountToken", bool),
}
KINDS: Mapping[str, Message] = {
    "ConfigMap": _CONFIG_MAP,
    "Secret": _SECRET,
    "ServiceAccount": _SERVICE_ACCOUNT,
    "Eviction": {1: _METADATA, 2: Field("deleteOptions", _message(_DELETE_OPTIONS))},
    "Namespace": _NAMESPACE,
    "DeleteOptions": _DELETE_OPTIONS,
    "Lease": {1: _METADATA, 2: Field("spec", _message(_LEASE_SPEC))},
    "Binding": {1: _METADATA, 2: Field("target", _message(_BINDING_TARGET))},
}
_TYPE_META = {1: Field("apiVersion", _text), 2: Field("kind", _text)}
_UNKNOWN = {1: Field("typeMeta", _message(_TYPE_META)), 2: Field("raw", bytes)}


def decode(body: bytes) -> dict[str, Any]:
    """The object in the envelope, as JSON data with its kind and apiVersion.

    ApiError 400 for what is not protobuf, 415 for a kind that is only taken as JSON.
    """
    if not body.startswith(MAGIC):
        raise bad_request("the body is not in the protobuf envelope its content type promises")
    try:
        envelope = read_message(memoryview(body)[len(MAGIC) :], _UNKNOWN)
        kind = envelope.get("typeMeta", {}).get("kind", "")
        if kind in KINDS:
            message = read_message(memoryview(envelope.get("raw", b"")), KINDS[kind])
            return {**envelope["typeMeta"], **message}
    except (ValueError, OverflowError, OSError, RecursionError) as error:
        raise bad_request(f"the protobuf body cannot be decoded: {error}") from None
    raise ApiError(
        415,
        "UnsupportedMediaType",
        f"objects of kind {kind!r} are not accepted as protobuf: send application/json",
    )


def read_message(data: Any, table: Message) -> dict[str, Any]:
    """The known fields of one message; empty texts are left out. ValueError when malformed."""
    result: dict[str, Any] = {}
    for number, value in _fields(data):
        field = table.get(number)
        if field is None:
            continue
        read = field.read(value)
        if field.pairs:
            result.setdefault(field.name, {})[read[0]] = read[1]
        elif field.many:
            result.setdefault(field.name, []).append(read)
        elif read is not None and read != "":
            result[field.name] = read
    return result


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    position = 0
    if not isinstance(data, bytes | memoryview):
        raise ValueError("a message was expected, found a number")
    view = memoryview(data)
    while position < len(view):
        tag, position = _varint(view, position)
        wire_type = tag & 7
        if wire_type == _VARINT:
            value, position = _varint(view, position)
            yield tag >> 3, value
            continue
        if wire_type == _BYTES:
            length, position = _varint(view, position)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"unknown wire type {wire_type}")
        if position + length > len(view):
            raise ValueError("the message is cut short")
        yield tag >> 3, view[position : position + length]
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
            return value & (2**64 - 1), position
        shift += 7
    raise ValueError("a number is longer than 64 bits")
