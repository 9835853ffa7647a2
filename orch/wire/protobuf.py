"""Counts the fields of a protobuf message before a parser makes objects of them; pure.

The parser holds the interpreter meanwhile: 4 MB of empty messages take it half a second and 150 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_VARINT, _BYTES = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}  # wire type → length


def require_few_fields(data: bytes, message: Any, most: int) -> None:
    """ValueError for too many fields, and for a field of another wire type than its message says.

    `message` is the descriptor of one that cannot contain itself, so depth needs no limit. The
    parser accepts both: it allocates every field, and skips the latter as unknown.
    """
    count, parts = 0, [(_fields(memoryview(data)), message)]
    while parts:  # the parts of a part come before its next field, so that few are held
        fields, message = parts[-1]
        for number, wire_type, value in fields:
            count += 1
            if count > most:
                raise ValueError(f"it has more than {most} fields")
            field = message.fields_by_number.get(number)
            if field is None:
                if message.GetOptions().map_entry:  # the parser would drop the whole entry
                    raise ValueError(f"an entry of {message.name} has an unknown field {number}")
                continue
            is_bytes = field.cpp_type in (field.CPPTYPE_STRING, field.CPPTYPE_MESSAGE)
            if wire_type != (_BYTES if is_bytes else _VARINT):
                raise ValueError(f"{message.name}.{field.name} has wire type {wire_type}")
            if field.message_type is not None:
                parts.append((_fields(value), field.message_type))
                break
        else:
            parts.pop()


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
