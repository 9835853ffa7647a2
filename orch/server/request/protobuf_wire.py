"""The wire format of protobuf read over tables of fields, into JSON data; pure.

What a table does not name is skipped, as protobuf demands, so newer clients are understood as far
as the table goes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orch.wire import times

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Field:
    """`read` makes JSON data of the wire value; `many` collects a list, `pairs` a map; what a field
    without a name holds stands in the message around it.
    """

    name: str
    read: Callable[[Any], Any]
    many: bool = False
    pairs: bool = False


Message = Mapping[int, Field]


def octets(value: Any) -> bytes:
    if not isinstance(value, memoryview):
        raise ValueError("bytes were expected, found a number")  # bytes(n) would make n of them
    return bytes(value)


def text(value: Any) -> str:
    return octets(value).decode()


def int64(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError("a number was expected, found bytes")
    return value - 2**64 if value >= 2**63 else value


def flag(value: Any) -> bool:
    return bool(int64(value))


def message(table: Message) -> Callable[[Any], dict[str, Any]]:
    return lambda value: read_message(value, table)


def pair(value: Any) -> tuple[str, str]:
    entry = read_message(value, {1: Field("key", text), 2: Field("value", text)})
    return entry.get("key", ""), entry.get("value", "")


def bytes_pair(value: Any) -> tuple[str, str]:
    """An entry of a map whose values are bytes, which JSON writes as base64."""
    entry = read_message(value, {1: Field("key", text), 2: Field("value", octets)})
    return entry.get("key", ""), base64.b64encode(entry.get("value", b"")).decode()


def texts_pair(value: Any) -> tuple[str, list[str]]:
    """An entry of a map whose values are lists of texts."""
    items = {1: Field("items", text, many=True)}
    entry = read_message(value, {1: Field("key", text), 2: Field("value", message(items))})
    return entry.get("key", ""), entry.get("value", {}).get("items", [])


def quantity(value: Any) -> str:
    written: str = read_message(value, {1: Field("string", text)}).get("string", "")
    return written


def quantity_pair(value: Any) -> tuple[str, str]:
    """An entry of a map whose values are quantities."""
    entry = read_message(value, {1: Field("key", text), 2: Field("value", quantity)})
    return entry.get("key", ""), entry.get("value", "")


def int_or_text(value: Any) -> int | str:
    """What JSON writes as either, by the type that is sent with both."""
    either = read_message(
        value, {1: Field("type", int64), 2: Field("int", int64), 3: Field("text", text)}
    )
    chosen: int | str = either.get("text", "") if either.get("type") else either.get("int", 0)
    return chosen


def _moment(value: Any) -> datetime | None:
    raw = read_message(value, {1: Field("s", int64), 2: Field("n", int64)})
    if not raw:
        return None
    whole = datetime.fromtimestamp(raw.get("s", 0), UTC)
    return whole.replace(microsecond=raw.get("n", 0) // 1000)


def time(value: Any) -> str | None:
    moment = _moment(value)
    return None if moment is None else times.format_time(moment)


def micro_time(value: Any) -> str | None:
    moment = _moment(value)
    return None if moment is None else times.format_micro_time(moment)


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
        elif not field.name:
            result.update(read)
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
