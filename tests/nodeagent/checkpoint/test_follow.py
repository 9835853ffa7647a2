"""The digest is that of the finished file, however it came to be."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.checkpoint import follow
from nodeagent.checkpoint.follow import Follower, digest_of


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_PAUSE_S", 0.001)
    monkeypatch.setattr(follow, "_FLUSH_BYTES", 5_000)


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
        assert follower.digest(archive.fileno()) == hashlib.sha256(path.read_bytes()).hexdigest()
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
