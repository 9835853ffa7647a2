from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from orch.server.storage import base, group_commit, lines
from orch.server.storage.group_commit import GroupCommitStorage
from tests.fakes.medium import FakeMedium
from tests.orch.server.storage.contract import Make, StorageContract


@pytest.fixture
def medium() -> FakeMedium:
    return FakeMedium()


class TestContract(StorageContract):
    @pytest.fixture
    def make(self, medium: FakeMedium) -> Make:
        return lambda: GroupCommitStorage(medium)


async def test_a_failed_commit_fails_its_writers_and_leaves_no_trace(
    medium: FakeMedium, caplog: pytest.LogCaptureFixture
) -> None:
    storage = GroupCommitStorage(medium)
    await storage.open()
    first = await storage.create("/pods/a/x", b"1")
    medium.failing = base.StorageFailed("disk full")
    results = await asyncio.gather(
        storage.update("/pods/a/x", b"2", first.revision),
        storage.create("/pods/a/y", b"1"),
        storage.delete("/pods/a/x"),
        storage.check(),
        return_exceptions=True,
    )
    assert [str(r) for r in results] == ["disk full"] * 4
    assert caplog.messages == []  # it was foreseen: the storage's health says it, once
    assert storage.list("/pods/").items == [first]
    assert storage.revision == first.revision

    medium.failing = None
    await storage.check()
    assert (await storage.update("/pods/a/x", b"2", first.revision)).data == b"2"
    await storage.create("/pods/a/y", b"1")
    await storage.close()


class FullMedium(FakeMedium):
    """A full disk, which has a reserve for what does not make the store larger."""

    def commit(self, changes: Sequence[base.Change], revision: int) -> None:
        if any(change.previous is None for change in changes):
            raise base.StorageFailed("disk full")
        super().commit(changes, revision)


async def test_new_objects_that_do_not_fit_keep_no_other_write_of_their_batch() -> None:
    medium = FullMedium()
    medium.objects = {key: base.Stored(key, 1, b"1") for key in ("/pods/a/x", "/pods/a/y")}
    medium.revision = 1
    storage = GroupCommitStorage(medium)
    await storage.open()
    created, updated, deleted, checked = await asyncio.gather(
        storage.create("/pods/a/z", b"1"),
        storage.update("/pods/a/x", b"2", 1),
        storage.delete("/pods/a/y"),
        storage.check(),
        return_exceptions=True,
    )
    assert str(created) == "disk full"
    assert [stored.data for stored in storage.list("/pods/").items] == [b"2"]
    assert isinstance(updated, base.Stored) and deleted is not None and checked is None
    assert storage.revision == medium.revision == 3
    await storage.close()


async def test_a_defect_in_the_medium_is_a_logged_failure_and_not_a_hang(
    medium: FakeMedium, caplog: pytest.LogCaptureFixture
) -> None:
    storage = GroupCommitStorage(medium)
    await storage.open()
    medium.failing = TypeError("a defect")
    with pytest.raises(base.StorageFailed, match="a defect"):
        await storage.create("/pods/a/x", b"1")
    assert "TypeError: a defect" in caplog.text
    medium.failing = None
    await storage.create("/pods/a/x", b"1")
    await storage.close()


async def test_who_waits_together_is_committed_together(medium: FakeMedium) -> None:
    storage = GroupCommitStorage(medium)
    await storage.open()
    await asyncio.gather(*(storage.create(f"/pods/a/{n}", b"1") for n in range(1000)))
    assert medium.commits < 100
    assert len(storage.list("/pods/").items) == 1000
    await storage.close()


class RecordingMedium(FakeMedium):
    """`batches` are the keys of each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []

    def commit(self, changes: Sequence[base.Change], revision: int) -> None:
        super().commit(changes, revision)
        self.batches.append([change.key for change in changes])


async def test_what_one_has_queued_keeps_no_other_from_the_next_commit() -> None:
    medium = RecordingMedium()
    storage = GroupCommitStorage(medium)
    await storage.open()
    medium.answering.clear()  # a commit is under way
    many = [
        asyncio.ensure_future(storage.create(f"/pods/a/{n}", bytes(11_000))) for n in range(200)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    other = asyncio.ensure_future(storage.create("/leases/nodes/n", b"1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    medium.answering.set()
    await asyncio.gather(other, *many)
    assert "/leases/nodes/n" in [key for batch in medium.batches[:2] for key in batch]
    assert max(map(len, medium.batches)) <= lines.COMMIT_BYTES // 11_000 + 1
    await storage.close()


async def test_everything_queued_is_written_before_it_closes(medium: FakeMedium) -> None:
    storage = GroupCommitStorage(medium)
    await storage.open()
    writes = [
        asyncio.ensure_future(storage.create(f"/pods/a/{n}", bytes(lines.COMMIT_BYTES)))
        for n in range(10)
    ]
    await asyncio.sleep(0)
    await storage.close()
    await asyncio.gather(*writes)
    assert len(medium.objects) == 10


async def test_refusals_alone_do_not_touch_the_medium(medium: FakeMedium) -> None:
    storage = GroupCommitStorage(medium)
    await storage.open()
    with pytest.raises(base.KeyMissing):
        await storage.delete("/pods/a/x")
    assert medium.commits == 0
    await storage.close()


async def test_a_medium_that_cannot_be_opened_is_reported(medium: FakeMedium) -> None:
    medium.failing = base.StorageFailed("gone")
    with pytest.raises(base.StorageFailed, match="gone"):
        await GroupCommitStorage(medium).open()


async def test_a_medium_that_hangs_does_not_keep_the_program_from_ending(
    medium: FakeMedium, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_commit, "CLOSE_TIMEOUT_S", 0.05)
    storage = GroupCommitStorage(medium)
    await storage.open()
    medium.answering.clear()
    writing = asyncio.ensure_future(storage.create("/pods/a/x", b"1"))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(30):
            await storage.close()
        assert "the last writes did not reach the medium within 0.05 s" in caplog.text
    finally:
        medium.answering.set()
    await writing
