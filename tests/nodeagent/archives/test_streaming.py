"""The digest is that of the finished file, however it was written."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.archives import streaming
from nodeagent.archives.streaming import ArchiveReader, ArchiveTail, FileDigest, digest_of


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "POLL_S", 0.001)


def at_once(path: Path) -> None:
    path.write_bytes(b"abc" * 10_000)


def in_pieces(path: Path) -> None:
    with path.open("wb") as archive:
        for number in range(20):
            archive.write(bytes([number]) * 1000)
            archive.flush()
            time.sleep(0.002)


def replaced(path: Path) -> None:
    path.write_bytes(b"first" * 1000)
    time.sleep(0.02)
    path.unlink()
    path.write_bytes(b"second" * 1000)


def shortened(path: Path) -> None:
    path.write_bytes(b"first" * 1000)
    time.sleep(0.02)
    os.truncate(path, 7)


def begun_anew(path: Path) -> None:
    path.write_bytes(b"first" * 1000)
    time.sleep(0.02)
    with path.open("r+b") as archive:
        archive.write(b"second")


def empty(path: Path) -> None:
    path.touch()


@pytest.mark.parametrize("write", [at_once, in_pieces, replaced, shortened, begun_anew, empty])
def test_the_digest_is_of_the_finished_file(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "archive"
    tail = ArchiveTail(path, flush_bytes=5_000)
    write(path)
    with path.open("rb") as archive:
        digest = tail.finish(archive.fileno())
        assert digest.size_bytes == path.stat().st_size
        assert digest.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert digest_of(archive.fileno()) == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("make", [None, os.mkfifo, Path.mkdir])
def test_an_unreadable_file_leaves_no_open_descriptor(
    tmp_path: Path, make: Callable[[Path], None] | None
) -> None:
    path, before = tmp_path / "archive", len(os.listdir("/proc/self/fd"))
    tail = ArchiveTail(path)
    if make:
        make(path)
        time.sleep(0.01)
    tail.cancel()
    tail.cancel()
    assert len(os.listdir("/proc/self/fd")) <= before  # earlier tests may close theirs


def test_a_file_consumed_while_written_is_not_consumed_again(tmp_path: Path) -> None:
    path, calls = tmp_path / "archive", 0

    def consume(reader: ArchiveReader) -> FileDigest:
        nonlocal calls
        calls += 1
        return streaming.digest(reader)

    tail = ArchiveTail(path, consume)
    in_pieces(path)
    with path.open("rb") as archive:
        tail.finish(archive.fileno())

    assert calls == 1


def test_a_failed_consumer_is_retried_and_its_error_raised(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    failures = [ValueError("first"), ValueError("second")]

    def consume(reader: ArchiveReader) -> FileDigest:
        streaming.digest(reader)
        raise failures.pop(0)

    path.touch()  # the tail opens it at once, and consumes it however late its thread begins
    tail = ArchiveTail(path, consume)
    in_pieces(path)
    with path.open("rb") as archive, pytest.raises(ValueError, match="second"):
        tail.finish(archive.fileno())


@pytest.mark.parametrize("size", [-1, 700, 1 << 20, 4 << 20])
def test_pieces_of_any_size_are_the_file(tmp_path: Path, size: int) -> None:
    path, data = tmp_path / "archive", bytes(range(250)) * 9_000
    path.write_bytes(data)
    with path.open("rb") as archive:
        reader, found = ArchiveReader(archive.fileno()), b""
        while piece := reader.read(size):
            assert len(piece) <= (1 << 20 if size < 0 else size)
            found += piece

    assert (found, reader.offset, reader.beginning) == (data, len(data), data[:512])


def test_a_cancelled_tail_stops_reading(tmp_path: Path) -> None:
    path, seen = tmp_path / "archive", []

    def consume(reader: ArchiveReader) -> FileDigest:
        while block := reader.read(1):
            seen.append(block)
            time.sleep(0.001)
        return FileDigest(0, "")

    path.write_bytes(b"x" * 100_000)
    tail = ArchiveTail(path, consume)
    tail.cancel()

    assert len(seen) < 1000
