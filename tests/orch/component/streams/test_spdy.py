"""SPDY/3.1 frames: bytes as the specification's draft 3 lays them out, and whatever else comes."""

from __future__ import annotations

import struct
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.component.streams import spdy
from orch.component.streams.spdy import (
    Data,
    Frame,
    FrameGuard,
    FrameReader,
    FrameWriter,
    GoAway,
    Headers,
    Ping,
    RstStream,
    Settings,
    SpdyError,
    SynReply,
    SynStream,
    WindowUpdate,
)

HEADERS = (("streamtype", "error"), ("port", "80"), ("several", "a"), ("several", "b"))


def read(*parts: bytes) -> list[Frame]:
    reader = FrameReader()
    return [frame for part in parts for frame in reader.feed(part)]


def test_the_dictionary_is_that_of_the_specification() -> None:
    assert len(spdy.DICTIONARY) == 1423
    assert zlib.adler32(spdy.DICTIONARY) == 0xE3C6A7C2  # what a zlib stream names it by


@pytest.mark.parametrize(
    ("frame", "wire"),
    [
        (RstStream(5, 5), "80030003 00000008 00000005 00000005"),
        (Settings(((4, 100),)), "80030004 0000000c 00000001 00000004 00000064"),
        (Ping(7), "80030006 00000004 00000007"),
        (GoAway(3, 1), "80030007 00000008 00000003 00000001"),
        (WindowUpdate(1, 65536), "80030009 00000008 00000001 00010000"),
        (Data(9, b"hi"), "00000009 00000002 6869"),
        (Data(9, b"", is_fin=True), "00000009 01000000"),
    ],
)
def test_a_frame_has_its_layout(frame: Frame, wire: str) -> None:
    assert FrameWriter().write(frame) == bytes.fromhex(wire)
    assert read(bytes.fromhex(wire)) == [frame]


def test_a_stream_s_opening_has_its_layout() -> None:
    written = FrameWriter().write(SynStream(1, HEADERS, is_fin=True, parent_id=3, priority=2))

    assert written[:4] == bytes.fromhex("80030001")
    assert written[4] == 1  # FIN
    assert struct.unpack_from("!IIH", written, 8) == (1, 3, 2 << 13)
    block = zlib.decompressobj(zdict=spdy.DICTIONARY).decompress(written[18:])
    assert block.startswith(b"\0\0\0\3" + b"\0\0\0\x0astreamtype" + b"\0\0\0\5error")
    assert block.endswith(b"\0\0\0\7several" + b"\0\0\0\3a\0b")


def test_the_headers_of_a_connection_are_one_stream_of_zlib() -> None:
    writer = FrameWriter()
    first, second = writer.write(SynStream(1, HEADERS)), writer.write(SynStream(3, HEADERS))

    assert len(second) < len(first)
    assert read(first, second) == [SynStream(1, HEADERS), SynStream(3, HEADERS)]


names = st.text(st.characters(codec="ascii", categories=("Ll", "Nd")), min_size=1, max_size=12)
values = st.text(st.characters(max_codepoint=255, exclude_characters="\0"), max_size=40)
headers = st.dictionaries(names, values, max_size=8).map(lambda made: tuple(made.items()))
ids = st.integers(1, 2**31 - 1)
words = st.integers(0, 2**31 - 1)
frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(SynStream, ids, headers, st.booleans(), st.booleans(), words, st.integers(0, 7)),
    st.builds(SynReply, ids, headers, st.booleans()),
    st.builds(Headers, ids, headers, st.booleans()),
    st.builds(RstStream, ids, words),
    st.builds(Settings, st.lists(st.tuples(words, words), max_size=5).map(tuple)),
    st.builds(Ping, words),
    st.builds(GoAway, words, words),
    st.builds(WindowUpdate, words, words),
    st.builds(Data, ids, st.binary(max_size=200), st.booleans()),
)


@given(st.lists(frames, max_size=10), st.integers(1, 64))
def test_frames_pass_unchanged_in_pieces_of_any_size(sent: list[Frame], size: int) -> None:
    writer = FrameWriter()
    wire = b"".join(map(writer.write, sent))

    received = read(*(wire[start : start + size] for start in range(0, len(wire), size)))

    assert joined(received) == joined(sent)


def joined(several: list[Frame]) -> list[Frame]:
    """What belongs to one stream put together, up to its end: of data only that is kept."""
    made: list[Frame] = []
    for frame in several:
        last = made[-1] if made else None
        both = isinstance(frame, Data) and isinstance(last, Data) and not last.is_fin
        if both and frame.stream_id == last.stream_id:
            made[-1] = Data(last.stream_id, last.data + frame.data, frame.is_fin)
        else:
            made.append(frame)
    return made


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_hostile_bytes_are_frames_or_one_clear_error(parts: list[bytes]) -> None:
    reader = FrameReader()
    try:
        for part in parts:
            for frame in reader.feed(part):
                assert isinstance(frame, Data | WindowUpdate | Ping | GoAway | RstStream | Settings)
    except SpdyError as error:
        assert str(error)


@given(st.binary(max_size=300), st.sampled_from([1, 2, 3, 4, 6, 7, 8, 9]))
def test_hostile_payloads_of_control_frames_are_one_clear_error(payload: bytes, kind: int) -> None:
    try:
        read(control(kind, payload))
    except SpdyError as error:
        assert str(error)


def control(kind: int, payload: bytes, version: int = 3) -> bytes:
    return struct.pack("!HHI", 0x8000 | version, kind, len(payload)) + payload


def block(*words: bytes | int) -> bytes:
    """A compressed block of headers made of texts, each with its length before it, and numbers."""
    plain = b"".join(
        struct.pack("!I", word) if isinstance(word, int) else struct.pack("!I", len(word)) + word
        for word in words
    )
    deflate = zlib.compressobj(9, zdict=spdy.DICTIONARY)
    return deflate.compress(plain) + deflate.flush(zlib.Z_SYNC_FLUSH)


def reply(payload: bytes) -> bytes:
    return control(2, struct.pack("!I", 1) + payload)


ENDED = zlib.compressobj(9, zdict=spdy.DICTIONARY)


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (control(6, b"\0\0\0\1", version=2), "version 2"),
        (control(6, b"\0\0\0"), "a PING frame has a wrong length"),
        (control(4, b"\xff\xff\xff\xff" + bytes(8)), "does not have 4294967295 settings"),
        (struct.pack("!HHI", 0x8003, 2, 0xFFFFFF), "a control frame has 16777215 bytes"),
        (struct.pack("!II", 0, 1), "names stream 0"),
        (control(3, bytes(8)), "names stream 0"),
        (reply(b"no zlib"), "cannot be inflated"),
        (reply(b""), "cut short"),
        (reply(block(0xFFFFFFFF)), "4294967295 headers, over 16"),
        (reply(block(1, b"name")), "cut short"),
        (reply(block(1, b"name", 0xFFFFFFFF)), "longer than its block"),
        (reply(block(1, b"name", b"value", 0)), "followed by other bytes"),
        (reply(block(2, b"a", b"1", b"a", b"2")), "twice"),
        (reply(block(1, b"Name", b"value")), "lower case: 'Name'"),
        (reply(block(1, b"", b"value")), "empty"),
        (reply(block(1, b"name", bytes(1_000_000))), "over 4096 bytes"),
        (reply(block(1, b"name", bytes(1000))), "over 16 values"),
        (reply(ENDED.compress(bytes(4)) + ENDED.flush()), "ended before"),
    ],
)  # fmt: skip
def test_a_broken_or_endless_frame_is_refused(wire: bytes, why: str) -> None:
    with pytest.raises(SpdyError, match=why):
        read(wire)


def test_headers_are_bounded_over_a_connection() -> None:
    writer = FrameWriter()
    long = Headers(1, (("name", "x" * 4_000),))

    with pytest.raises(SpdyError, match="a connection has over 1048576 bytes"):
        read(*(writer.write(long) for _ in range(300)))


def test_an_unknown_control_frame_means_nothing() -> None:
    assert read(control(77, b"whatever"), FrameWriter().write(Ping(1))) == [Ping(1)]


def test_data_passes_before_its_frame_is_complete() -> None:
    reader = FrameReader()
    head = struct.pack("!II", 5, 1 << 24 | 10)

    assert list(reader.feed(head + b"12345")) == [Data(5, b"12345")]
    assert list(reader.feed(b"67890")) == [Data(5, b"67890", is_fin=True)]


def test_a_frame_that_trickles_in_costs_no_more_than_its_bytes() -> None:
    """A whole control frame byte by byte: copying what waits each time would take seconds."""
    wire = control(77, bytes(spdy.MAX_CONTROL_BYTES)) * 8
    reader = FrameReader()
    began_s = time.process_time()

    for number in range(len(wire)):
        assert not list(reader.feed(wire[number : number + 1]))

    assert time.process_time() - began_s < 2


def test_a_guard_lets_whole_frames_pass_as_they_came() -> None:
    writer = FrameWriter()
    opening = [SynStream(2 * n + 1, (*HEADERS, ("requestid", str(n)))) for n in range(9)]
    data = Data(1, bytes(100)), Ping(1), GoAway(0), Data(3, b"", is_fin=True)
    wire = b"".join(map(writer.write, (*opening, *data)))
    for size in (1, 7, 1000, len(wire)):
        guard = FrameGuard()
        parts = [guard.admit(wire[at : at + size]) for at in range(0, len(wire), size)]
        assert b"".join(parts) == wire


def test_a_guard_forgets_what_passed() -> None:
    """A forwarding of ports opens streams for as long as it lasts."""
    guard, writer = FrameGuard(), FrameWriter()
    for number in range(300):
        frame = writer.write(Headers(1, (("a", "x" * 3_900), ("b", str(number)))))
        assert guard.admit(frame) == frame


COUNTS = zlib.compressobj(zdict=spdy.DICTIONARY)
MANY_HEADERS = COUNTS.compress(b"\x80\0\0\0") + COUNTS.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(
    "hostile",
    [
        bytes.fromhex("80030004 00000004 80000000"),  # two thousand million settings
        bytes.fromhex("80030004 0000000c 7fffffff 0000000000000000"),
        bytes.fromhex("80030004 00ffffff 00ffffff"),
        bytes.fromhex("80030001") + struct.pack("!I", 10 + len(MANY_HEADERS)) + bytes(3) + b"\1"
        + bytes(6) + MANY_HEADERS,
    ],
)  # fmt: skip
def test_a_guard_holds_back_what_says_it_is_longer_than_it_is(hostile: bytes) -> None:
    """Servers make room for as much as is said, before it is there."""
    guard, passed = FrameGuard(), b""
    with pytest.raises(SpdyError):
        for byte in hostile:
            passed += guard.admit(bytes((byte,)))
        raise AssertionError(passed)
    assert passed == b""
