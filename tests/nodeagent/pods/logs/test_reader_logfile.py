"""Reading log files from their end, and across rotation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.pods.logs import reader
from nodeagent.pods.logs.reader import LogFile


def read_all(file: LogFile) -> bytes:
    read = b""
    while data := file.read():
        read += data
    return read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "0.log"


@given(
    st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b".")), max_size=30),
    st.booleans(),
    st.integers(0, 40),
    st.integers(1, 50),
)
def test_the_tail_is_the_last_lines_whatever_the_block(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ended: bool, tail: int, block: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "0.log"
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    path.write_bytes(data)
    before, reader.CHUNK_BYTES = reader.CHUNK_BYTES, block
    try:
        with LogFile(str(path)) as file:
            file.seek_tail(tail)
            assert read_all(file) == b"".join(_lines(data)[-tail:] if tail else [])
    finally:
        reader.CHUNK_BYTES = before


def _lines(data: bytes) -> list[bytes]:
    """Split after newlines only; splitlines knows more line ends."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def test_what_is_written_later_is_read_later(path: Path) -> None:
    path.write_bytes(b"a\n")
    with LogFile(str(path)) as file:
        assert read_all(file) == b"a\n"
        assert file.read() == b""
        with path.open("ab") as stream:
            stream.write(b"b\n")
        assert read_all(file) == b"b\n"


def test_a_rotated_log_is_read_to_its_end_and_then_the_new_one(path: Path) -> None:
    path.write_bytes(b"old\n")
    with LogFile(str(path)) as file:
        assert file.read() == b"old\n"
        with path.open("ab") as stream:
            stream.write(b"last\n")
        path.rename(f"{path}.1")
        assert file.read() == b"last\n"
        assert file.read() == b"", "the new one is not there yet"
        path.write_bytes(b"new\n")
        assert file.read() == b"new\n"


def test_a_truncated_log_is_read_from_its_start(path: Path) -> None:
    path.write_bytes(b"old and long\n")
    with LogFile(str(path)) as file:
        assert read_all(file) == b"old and long\n"
        path.write_bytes(b"new\n")
        assert read_all(file) == b"new\n"


def test_a_log_that_is_gone_ends(path: Path) -> None:
    path.write_bytes(b"a\n")
    with LogFile(str(path)) as file:
        path.unlink()
        assert file.read() == b"a\n"
        assert file.read() == b""
