"""Frames of SPDY/3.1, as the streaming servers of container runtimes speak it. Pure.

A `FrameWriter` turns frames into bytes, a `FrameReader` bytes into frames; a connection has one of
each, for the headers of one direction are one zlib stream. The payload of a data frame is passed
on as it arrives, never collected. Everything else is bounded: control frames and headers in bytes,
and the headers of a connection in all. The reference keeps no flow control windows on either side,
so none are kept here: WINDOW_UPDATE is read and means nothing.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

MAX_CONTROL_BYTES = 16 * 1024  # the payload of a control frame
MAX_HEADERS_BYTES = 4 * 1024  # of one frame, inflated: a stream's are a few words
MAX_HEADERS = 16  # of one frame, several of one name included
MAX_HEADERS_BYTES_IN_ALL = 1024 * 1024  # of a connection, inflated
MAX_DATA_BYTES = 2**24 - 1  # of one frame

_VERSION = 3
_CONTROL = 0x8000_0000
_STREAM_ID = 0x7FFF_FFFF
_FIN = 0x01
_UNIDIRECTIONAL = 0x02
_HEAD = struct.Struct("!II")
_WORD = struct.Struct("!I")
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS = 1, 2, 3, 4
_PING, _GOAWAY, _HEADERS, _WINDOW_UPDATE = 6, 7, 8, 9

CANCEL = 5  # the status of a reset: the stream is no longer wanted

# SPDY's draft 3, section 2.6.10.1: words with their length before them, then some without.
_DICTIONARY_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language"
    " accept-ranges age allow authorization cache-control connection content-base content-encoding"
    " content-language content-length content-location content-md5 content-range content-type date"
    " etag expect expires from host if-match if-modified-since if-none-match if-range"
    " if-unmodified-since last-modified location max-forwards pragma proxy-authenticate"
    " proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade"
    " user-agent vary via warning www-authenticate method get status"
)
_DICTIONARY_TAIL = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request"
    "401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented"
    "503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00"
    " Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    "application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,"
    "deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
_DICTIONARY_MORE = "version HTTP/1.1 url public set-cookie keep-alive origin"
DICTIONARY = (
    b"".join(
        _WORD.pack(len(word)) + word.encode()
        for word in (*_DICTIONARY_WORDS.split(), "200 OK", *_DICTIONARY_MORE.split())
    )
    + _DICTIONARY_TAIL.encode()
)


class SpdyError(Exception):
    """The other side broke the protocol, or one of the bounds."""


HeaderPairs: TypeAlias = tuple[tuple[str, str], ...]  # names in lower case


class SynStream(NamedTuple):
    """A stream is opened. `is_one_way`: the other side sends nothing on it."""

    stream_id: int
    headers: HeaderPairs
    is_fin: bool = False
    is_one_way: bool = False
    parent_id: int = 0
    priority: int = 0  # 0 to 7, the most urgent first


class SynReply(NamedTuple):
    """The other side takes the stream."""

    stream_id: int
    headers: HeaderPairs = ()
    is_fin: bool = False


class RstStream(NamedTuple):
    """Both directions of a stream end, what was sent before included."""

    stream_id: int
    status: int = CANCEL


class Settings(NamedTuple):
    """Pairs of a setting's number, its flags in the highest byte, and its value."""

    values: tuple[tuple[int, int], ...]


class Ping(NamedTuple):
    """To be sent back, if the id is the other side's: odd for a client's, even for a server's."""

    ping_id: int


class GoAway(NamedTuple):
    """No more streams are taken; `status` 0 is a quiet end."""

    last_stream_id: int
    status: int = 0


class Headers(NamedTuple):
    """More headers of a stream."""

    stream_id: int
    headers: HeaderPairs
    is_fin: bool = False


class WindowUpdate(NamedTuple):
    """The other side takes `delta_bytes` more."""

    stream_id: int
    delta_bytes: int


class Data(NamedTuple):
    """Bytes of a stream: of a frame that is read, the part that has arrived."""

    stream_id: int
    data: bytes
    is_fin: bool = False


Frame: TypeAlias = (
    SynStream | SynReply | RstStream | Settings | Ping | GoAway | Headers | WindowUpdate | Data
)


class FrameWriter:
    """Frames become bytes, to be sent in this order."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zlib.Z_BEST_COMPRESSION, zdict=DICTIONARY)

    def write(self, frame: Frame) -> bytes:
        """The bytes of a frame; ValueError for data of over MAX_DATA_BYTES."""
        match frame:
            case Data(stream_id, data, is_fin):
                if len(data) > MAX_DATA_BYTES:
                    raise ValueError(f"a frame takes {MAX_DATA_BYTES} bytes, not {len(data)}")
                return _HEAD.pack(stream_id, is_fin << 24 | len(data)) + data
            case SynStream():
                numbers = struct.pack(
                    "!IIH", frame.stream_id, frame.parent_id, frame.priority << 13
                )
                flags = _FIN * frame.is_fin | _UNIDIRECTIONAL * frame.is_one_way
                return _control(_SYN_STREAM, numbers + self._block(frame.headers), flags)
            case SynReply(stream_id, headers, is_fin):
                return _control(_SYN_REPLY, _WORD.pack(stream_id) + self._block(headers), is_fin)
            case Headers(stream_id, headers, is_fin):
                return _control(_HEADERS, _WORD.pack(stream_id) + self._block(headers), is_fin)
        return _control(*_plain(frame))

    def _block(self, headers: HeaderPairs) -> bytes:
        values: dict[str, list[str]] = {}
        for name, value in headers:
            values.setdefault(name.lower(), []).append(value)
        parts = [_WORD.pack(len(values))]
        for name, several in values.items():
            for text in (name, "\0".join(several)):
                encoded = text.encode("latin-1")
                parts += _WORD.pack(len(encoded)), encoded
        return self._deflate.compress(b"".join(parts)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def _plain(frame: RstStream | Settings | Ping | GoAway | WindowUpdate) -> tuple[int, bytes]:
    """The type and payload of a control frame without headers."""
    match frame:
        case RstStream():
            return _RST_STREAM, _HEAD.pack(*frame)
        case Settings(values):
            pairs = b"".join(_HEAD.pack(*pair) for pair in values)
            return _SETTINGS, _WORD.pack(len(values)) + pairs
        case Ping():
            return _PING, _WORD.pack(*frame)
        case GoAway():
            return _GOAWAY, _HEAD.pack(*frame)
        case WindowUpdate():
            return _WINDOW_UPDATE, _HEAD.pack(*frame)


def _control(kind: int, payload: bytes, flags: int = 0) -> bytes:
    return _HEAD.pack(_CONTROL | _VERSION << 16 | kind, flags << 24 | len(payload)) + payload


class FrameReader:
    """Bytes become frames; after a SpdyError it is of no further use."""

    def __init__(self, most_headers_bytes: float = MAX_HEADERS_BYTES_IN_ALL) -> None:
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._most_headers_bytes = most_headers_bytes  # inflated, of all frames
        self._headers_bytes = 0  # so far
        self._waiting = bytearray()  # less than a head and a control frame
        self.data_left = 0  # bytes of the data frame that is arriving
        self._data_of = (0, False)  # its stream, and whether it ends that

    @property
    def waiting_bytes(self) -> int:
        """Of those fed: the beginning of a frame, which is not judged yet."""
        return len(self._waiting)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are now complete, and the data that has come; iterate to the end."""
        waiting = self._waiting
        waiting += data
        while self.data_left or len(waiting) >= _HEAD.size:
            if self.data_left:
                if not waiting:
                    return
                yield self._take_data()
                continue
            first, second = _HEAD.unpack_from(waiting)
            flags, size = second >> 24, second & MAX_DATA_BYTES
            if not first & _CONTROL:
                del waiting[: _HEAD.size]
                self.data_left, self._data_of = size, (_stream(first), bool(flags & _FIN))
                if not size:
                    yield self._take_data()
                continue
            _check_head(first, size)
            if len(waiting) < _HEAD.size + size:
                return
            payload = bytes(waiting[_HEAD.size : _HEAD.size + size])
            del waiting[: _HEAD.size + size]
            frame = self._parse(first & 0xFFFF, flags, payload)
            if frame is not None:
                yield frame

    def _take_data(self) -> Data:
        part = bytes(self._waiting[: self.data_left])
        del self._waiting[: self.data_left]
        self.data_left -= len(part)
        stream_id, is_fin = self._data_of
        return Data(stream_id, part, is_fin and not self.data_left)

    def _parse(self, kind: int, flags: int, payload: bytes) -> Frame | None:
        """None for a type that is not known, which is to be ignored."""
        is_fin = bool(flags & _FIN)
        if kind == _SYN_STREAM:
            stream_id, parent_id, priority = _numbers("SYN_STREAM", "!IIH", payload[:10])
            headers = self._headers(payload[10:])
            one_way = bool(flags & _UNIDIRECTIONAL)
            return SynStream(
                _stream(stream_id), headers, is_fin, one_way, parent_id & _STREAM_ID, priority >> 13
            )
        if kind in (_SYN_REPLY, _HEADERS):
            (stream_id,) = _numbers("SYN_REPLY or HEADERS", "!I", payload[:4])
            made = SynReply if kind == _SYN_REPLY else Headers
            return made(_stream(stream_id), self._headers(payload[4:]), is_fin)
        return _parse_plain(kind, payload)

    def _headers(self, block: bytes) -> HeaderPairs:
        try:
            plain = self._inflate.decompress(block, MAX_HEADERS_BYTES + 1)
        except zlib.error as error:
            raise SpdyError(f"headers cannot be inflated: {error}") from error
        if len(plain) > MAX_HEADERS_BYTES or self._inflate.unconsumed_tail:
            raise SpdyError(f"the headers of a frame have over {MAX_HEADERS_BYTES} bytes")
        if self._inflate.eof:
            raise SpdyError("the stream of headers has ended before its connection")
        self._headers_bytes += len(plain)
        if self._headers_bytes > self._most_headers_bytes:
            raise SpdyError(f"a connection has over {self._most_headers_bytes} bytes of headers")
        pairs = tuple(islice(_pairs(plain), MAX_HEADERS + 1))
        if len(pairs) > MAX_HEADERS:
            raise SpdyError(f"a frame has over {MAX_HEADERS} values of headers")
        return pairs


class FrameGuard:
    """Lets bytes pass that are frames within the bounds: for a server that believes in lengths, of
    which one of twelve bytes takes gigabytes.
    """

    def __init__(self) -> None:
        self._reader = FrameReader(math.inf)  # nothing of them is kept
        self._held = b""

    def admit(self, data: bytes) -> bytes:
        """The bytes that may pass on, held ones first; SpdyError, after which none may."""
        for _ in self._reader.feed(data):
            """Each is judged as it is read."""
        data = self._held + data
        passed = len(data) - self._reader.waiting_bytes
        self._held = data[passed:]
        return data[:passed]

    def data_left(self) -> int:
        """How many of the next bytes are data of one frame, which need no judging."""
        return self._reader.data_left


def _check_head(first: int, size: int) -> None:
    version = first >> 16 & 0x7FFF
    if version != _VERSION:
        raise SpdyError(f"a frame has version {version} of SPDY, not {_VERSION}")
    if size > MAX_CONTROL_BYTES:
        raise SpdyError(f"a control frame has {size} bytes, over {MAX_CONTROL_BYTES}")


def _parse_plain(kind: int, payload: bytes) -> Frame | None:
    match kind:
        case 3:
            stream_id, status = _numbers("RST_STREAM", "!II", payload)
            return RstStream(_stream(stream_id), status)
        case 4:
            return _parse_settings(payload)
        case 6:
            return Ping(*_numbers("PING", "!I", payload))
        case 7:
            last_stream_id, status = _numbers("GOAWAY", "!II", payload)
            return GoAway(last_stream_id & _STREAM_ID, status)
        case 9:
            stream_id, delta = _numbers("WINDOW_UPDATE", "!II", payload)
            return WindowUpdate(stream_id & _STREAM_ID, delta & _STREAM_ID)
    return None


def _parse_settings(payload: bytes) -> Settings:
    (count,) = _numbers("SETTINGS", "!I", payload[:4])
    if len(payload) != 4 + count * _HEAD.size:
        raise SpdyError(f"a SETTINGS frame of {len(payload)} bytes does not have {count} settings")
    return Settings(tuple(_HEAD.iter_unpack(payload[4:])))


def _numbers(name: str, layout: str, payload: bytes) -> tuple[int, ...]:
    if len(payload) != struct.calcsize(layout):
        raise SpdyError(f"a {name} frame has a wrong length")
    return struct.unpack(layout, payload)


def _stream(stream_id: int) -> int:
    if not stream_id & _STREAM_ID:
        raise SpdyError("a frame names stream 0")
    return stream_id & _STREAM_ID


def _pairs(plain: bytes) -> Iterator[tuple[str, str]]:
    """The headers of a block; a name's several values are pairs of their own."""
    texts = _texts(plain)
    seen = set()
    for name in texts:
        value = next(texts)
        if not name or name != name.lower() or name in seen:
            raise SpdyError(
                f"the name of a header is empty, twice there or not lower case: {name!r}"
            )
        seen.add(name)
        yield from ((name, one) for one in value.split("\0"))


def _texts(plain: bytes) -> Iterator[str]:
    """Names and values by turns."""
    if len(plain) < _WORD.size:
        raise SpdyError("a block of headers is cut short")
    (count,) = _WORD.unpack_from(plain)
    if count > MAX_HEADERS:
        raise SpdyError(f"a frame has {count} headers, over {MAX_HEADERS}")
    position = _WORD.size
    for _ in range(2 * count):
        if position + _WORD.size > len(plain):
            raise SpdyError("a block of headers is cut short")
        (size,) = _WORD.unpack_from(plain, position)
        position += _WORD.size
        if position + size > len(plain):
            raise SpdyError("a header is longer than its block")
        yield plain[position : position + size].decode("latin-1")
        position += size
    if position != len(plain):
        raise SpdyError("a block of headers is followed by other bytes")
