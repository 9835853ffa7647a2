"""The digest is that of the finished file, however it came to be."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.archives import streaming
from nodeagent.archives.streaming import Follower, Reader, Sealed, digest_of


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "_PAUSE_S", 0.001)
    monkeypatch.setattr(streaming, "_FLUSH_BYTES", 5_000)


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
def test_the_digest_is_of_what_lies_there_in_the_end(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "archive"
    follower = Follower(path)
    write(path)
    with path.open("rb") as archive:
        sealed = follower.result(archive.fileno())
        assert sealed.size_bytes == path.stat().st_size
        assert sealed.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
        assert digest_of(archive.fileno()) == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("make", [None, os.mkfifo, Path.mkdir])
def test_what_cannot_be_read_is_no_trouble(
    tmp_path: Path, make: Callable[[Path], None] | None
) -> None:
    path, before = tmp_path / "archive", len(os.listdir("/proc/self/fd"))
    follower = Follower(path)
    if make:
        make(path)
        time.sleep(0.01)
    follower.stop()
    follower.stop()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_was_consumed_meanwhile_is_not_consumed_again(tmp_path: Path) -> None:
    path, calls = tmp_path / "archive", 0

    def consume(reader: Reader) -> Sealed:
        nonlocal calls
        calls += 1
        return streaming.digest(reader)

    follower = Follower(path, consume)
    in_pieces(path)
    with path.open("rb") as archive:
        follower.result(archive.fileno())

    assert calls == 1


def test_what_failed_meanwhile_is_tried_again_and_its_failure_told(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    failures = [ValueError("first"), ValueError("second")]

    def consume(reader: Reader) -> Sealed:
        streaming.digest(reader)
        raise failures.pop(0)

    follower = Follower(path, consume)
    in_pieces(path)
    with path.open("rb") as archive, pytest.raises(ValueError, match="second"):
        follower.result(archive.fileno())


@pytest.mark.parametrize("size", [-1, 1, 700, 1000, 4000])
def test_pieces_of_any_size_are_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(streaming, "_BLOCK", 1000)
    path, data = tmp_path / "archive", bytes(range(250)) * 9
    path.write_bytes(data)
    with path.open("rb") as archive:
        reader, found = Reader(archive.fileno()), b""
        while piece := reader.read(size):
            assert len(piece) <= (1000 if size < 0 else size)
            found += piece

    assert (found, reader.offset, reader.beginning) == (data, len(data), data[:512])


def test_a_follower_that_is_stopped_reads_no_further(tmp_path: Path) -> None:
    path, seen = tmp_path / "archive", []

    def consume(reader: Reader) -> Sealed:
        while block := reader.read(1):
            seen.append(block)
            time.sleep(0.001)
        return Sealed(0, "")

    path.write_bytes(b"x" * 100_000)
    follower = Follower(path, consume)
    follower.stop()

    assert len(seen) < 1000
