"""The few CRI calls of this tool, over a socket with the standard library alone.

A unary gRPC call is an HTTP/2 stream: request headers and a message go out, and a message comes
back unless the call failed. Response headers are compressed and not needed: a message means
success, its absence failure. Field numbers are those of the CRI v1 definition (cri-api,
runtime/v1/api.proto). The agent itself uses grpcio; this tool runs before anything is installed.
"""

import dataclasses
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK, _PADDED = 1, 4, 1, 8
_WIDE_WINDOW = (1 << 30) - 1
RUNTIME = "/runtime.v1.RuntimeService/"
IMAGES = "/runtime.v1.ImageService/"

Fields = Mapping[int, Sequence[bytes]]


class CallFailed(Exception):
    """The runtime cannot be reached, or answered with an error."""


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """Who answers on a socket, for example containerd and v2.1.9."""

    name: str
    version: str


def version(path: Path, *, timeout_s: float = 2) -> Version:
    """Ask who serves CRI at `path`."""
    fields = call(path, f"{RUNTIME}Version", b"", timeout_s)
    return Version(name=_text(fields, 2), version=_text(fields, 3))


def not_ready(path: Path) -> Sequence[str]:
    """Name what the runtime says is not ready yet, each with its reason; empty when all is."""
    status = _decode(_first(call(path, f"{RUNTIME}Status", b"", 2), 1))
    conditions = [_decode(item) for item in status.get(1, ())]
    return [f"{_text(c, 1)} ({_text(c, 4)})" for c in conditions if not _number(c, 2)]


def image_id(path: Path, name: str) -> str | None:
    """Return the id of the image `name`, or None when the runtime does not have it."""
    image = call(path, f"{IMAGES}ImageStatus", field(1, field(1, name.encode())), 5).get(1)
    return _text(_decode(image[0]), 1) if image else None


def images(path: Path) -> Mapping[str, str]:
    """Return the ids of all tagged images by name."""
    listed = call(path, f"{IMAGES}ListImages", b"", 5).get(1, ())
    decoded = [_decode(item) for item in listed]
    return {tag.decode(): _text(image, 1) for image in decoded for tag in image.get(2, ())}


def pods(path: Path) -> Sequence[str]:
    """Return the ids of all pod sandboxes, running or not."""
    listed = call(path, f"{RUNTIME}ListPodSandbox", b"", 10).get(1, ())
    return [_text(_decode(item), 1) for item in listed]


def remove_pod(path: Path, pod: str) -> None:
    """Stop and remove a pod sandbox with all of its containers."""
    for method in ("StopPodSandbox", "RemovePodSandbox"):
        call(path, RUNTIME + method, field(1, pod.encode()), 20)


def wait(question: Callable[[], bool], *, timeout_s: float) -> bool:
    """Ask again until the answer is true or the time is over; a failed call counts as false."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if question():
                return True
        except CallFailed:
            pass
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def call(path: Path, method: str, request: bytes, timeout_s: float) -> Fields:
    """Make one unary call and return the fields of the answer by number; raises CallFailed."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(_request(method, request))
            answer = _answer(connection)
    except OSError as error:
        raise CallFailed(f"{method} at {path}: {error}") from error
    if answer is None:
        raise CallFailed(f"{method} at {path}: the runtime answered with an error")
    return _decode(answer)


def _request(method: str, message: bytes) -> bytes:
    """Return everything the client sends: preface, wide windows, headers and the message."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(_literal(name, value) for name, value in headers.items())
    return b"".join(
        (
            _PREFACE,
            _frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, _WIDE_WINDOW)),
            _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _WIDE_WINDOW - 65535)),
            _frame(_HEADERS, _END_HEADERS, 1, block),
            _frame(_DATA, _END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message),
        )
    )


def _literal(name: str, value: str) -> bytes:
    """Encode one header as a literal that is not indexed (RFC 7541, 6.2.2); below 127 bytes."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def _answer(connection: socket.socket) -> bytes | None:
    """Read frames until the stream ends; return the message, or None when there was none."""
    body = b""
    while True:
        head = _exactly(connection, 9)
        kind, flags = head[3], head[4]
        payload = _exactly(connection, int.from_bytes(head[:3], "big"))
        if kind in (_RST_STREAM, _GOAWAY):
            return None
        if kind in (_SETTINGS, _PING) and not flags & _ACK:
            connection.sendall(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        if kind == _DATA:
            body += payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            return body[5:] if len(body) >= 5 else None


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the connection was closed")
        data += part
    return data


def _decode(message: bytes) -> Fields:
    """Split a protobuf message into its fields; numbers are kept as their varint bytes."""
    fields: dict[int, list[bytes]] = {}
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        start = position
        match tag & 7:
            case 0:
                _, position = _varint(message, position)
            case 1:
                position += 8
            case 2:
                length, start = _varint(message, position)
                position = start + length
            case _:
                position += 4
        fields.setdefault(tag >> 3, []).append(message[start:position])
    return fields


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position` and the position after it."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position


def field(number: int, content: bytes) -> bytes:
    """Encode one field of bytes, a text or a nested message; `number` is below 16."""
    length, encoded = len(content), b""
    while length > 127:
        encoded += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + encoded + bytes([length]) + content


def _first(fields: Fields, number: int) -> bytes:
    return fields.get(number, [b""])[0]


def _text(fields: Fields, number: int) -> str:
    return _first(fields, number).decode(errors="replace")


def _number(fields: Fields, number: int) -> int:
    content = _first(fields, number)
    return _varint(content, 0)[0] if content else 0
