"""The file of allocations: written whole, read back, set aside when it is not what was written."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from nodeagent.pods.devices import ledger
from nodeagent.pods.devices.allocation import Allocation, Grant
from nodeagent.pods.devices.ledger import Entry, Ledger, LedgerError, Record
from nodeagent.runtime.base import HostDevice, Mount

GRANT = Grant(
    env=(("A", "1"),),
    mounts=(Mount("/out", "/in", readonly=True),),
    devices=(HostDevice("/dev/a", "/dev/null", "rw"),),
    annotations={"a": "b"},
    cdi_devices=("v/c=1",),
)
RECORD = Record(
    (
        Entry("uid", "app", "example.com/foo", Allocation({"a": (0, 1)}, GRANT)),
        Entry("uid", "app", "example.com/bar", Allocation({"ü": ()})),
    ),
    ("example.com/foo",),
)


def at(path: Path, record: Record = RECORD) -> Ledger:
    return Ledger(path, lambda: record)


async def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    assert await at(path).load() is None
    await at(path).save()
    assert await at(path).load() == RECORD
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        ledger.encode(RECORD)[:-1],
        ledger.encode(RECORD).replace(b"/dev/null", b"/dev/sda1"),
        ledger.encode(RECORD).replace(b"/1 ", b"/2 "),
        b"\0" * 1000,
    ],
)
async def test_a_file_that_was_changed_is_named_and_set_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(content)
    assert await at(path).load() is None
    assert not path.exists()
    assert (tmp_path / "ledger.corrupt").read_bytes() == content
    assert str(path) in caplog.text and "checksum" in caplog.text
    await at(path).save()
    assert await at(path).load() == RECORD


def test_a_valid_checksum_over_other_data_is_not_enough() -> None:
    whole = ledger.encode(Record())
    assert ledger.decode(whole) == Record()
    import hashlib

    body = b'{"entries": [{"pod": 1}]}'
    head = f"device-allocations/1 {hashlib.sha256(body).hexdigest()}\n".encode()
    with pytest.raises(LedgerError, match=r"entries\.0\."):
        ledger.decode(head + body)


async def test_a_link_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    path, other = tmp_path / "ledger", tmp_path / "other"
    other.write_bytes(ledger.encode(RECORD))
    path.symlink_to(other)
    assert await at(path).load() is None, "a link is set aside"
    path.symlink_to(other)
    with pytest.raises(FileExistsError):
        await at(path, Record()).save()
    assert other.read_bytes() == ledger.encode(RECORD)


async def test_a_pipe_in_its_place_keeps_nobody_waiting(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    os.mkfifo(path)
    async with asyncio.timeout(5):
        assert await at(path).load() is None


async def test_saves_at_once_share_a_write_and_all_are_kept(tmp_path: Path) -> None:
    path, kept = tmp_path / "ledger", [Record()]
    written: list[int] = []

    def snapshot() -> Record:
        written.append(len(kept[-1].entries))
        return kept[-1]

    shared = Ledger(path, snapshot)

    async def add(n: int) -> None:
        entry = Entry(str(n), "app", "a.b/c", Allocation({str(n): ()}))
        kept.append(Record((*kept[-1].entries, entry)))
        await shared.save()
        found = await asyncio.to_thread(lambda: ledger.decode(path.read_bytes()))
        assert entry in found.entries

    await asyncio.gather(*map(add, range(20)))
    assert len(written) <= 3, "those that wait are covered by one write"


async def test_what_could_not_be_written_is_caught_up_with(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    mine = at(path)
    await mine.catch_up()
    assert not path.exists(), "there is nothing to catch up with"
    path.mkdir()
    for write in (mine.save, mine.catch_up):
        with pytest.raises(OSError, match="ledger"):
            await write()
    path.rmdir()
    await mine.catch_up()
    assert await at(path).load() == RECORD
    path.unlink()
    await mine.catch_up()
    assert not path.exists()
