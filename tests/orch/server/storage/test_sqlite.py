from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import sqlite3
import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from orch.server.storage import base, sqlite
from orch.server.storage.base import Change, Stored
from orch.server.storage.sqlite import SqliteMedium, SqliteStorage
from tests.orch.server.storage.contract import Make, StorageContract


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


class TestContract(StorageContract):
    @pytest.fixture
    def make(self, path: Path) -> Make:
        return lambda: SqliteStorage(path)


async def test_only_the_owner_can_read_the_files(path: Path) -> None:
    storage = SqliteStorage(path)
    await storage.open()
    await storage.create("/pods/a/x", b"1")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    await storage.close()
    assert set(modes.values()) == {0o600}
    assert {"state.db", "state.db-wal", "state.db-reserve"} == set(modes)


@pytest.mark.parametrize("size", [400, 3_000, 11_000, 500_000])
def test_the_log_is_written_back_between_commits_not_amid_one(path: Path, size: int) -> None:
    """Else all callers of such a commit wait for that, too."""
    medium, revision, written_back = SqliteMedium(path), 0, 0
    medium.open()
    none, before, after = (
        [data and Stored(f"/pods/a/{number}", 1, data * size) for number in range(300)]
        for data in (b"", b"1", b"2")
    )
    for was, is_now in ((none, before), (before, after), (after, none)):
        for previous, current in zip(was, is_now, strict=True):
            revision += 1
            known = os.stat(path).st_mtime_ns
            key = f"/pods/a/{revision % 300}"
            medium.commit([Change(key, revision, current or None, previous or None)], revision)
            assert os.stat(path).st_mtime_ns == known, f"amid commit {revision}"
            medium.tidy()
            written_back += os.stat(path).st_mtime_ns != known
    medium.close()
    assert written_back > 1


async def test_a_second_server_on_the_file_is_refused(path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sqlite, "LOCK_WAIT_S", 0.05)
    storage = SqliteStorage(path)
    await storage.open()
    with pytest.raises(base.StorageFailed, match="another process has it open"):
        await SqliteStorage(path).open()
    await storage.create("/pods/a/x", b"1")
    await storage.close()


async def test_a_file_of_another_program_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to look like a page" * 200)
    with pytest.raises(base.StorageFailed, match="not a database"):
        await SqliteStorage(path).open()


async def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(base.StorageFailed, match="schema version 99"):
        await SqliteStorage(path).open()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (99,)
        assert connection.execute("SELECT * FROM sqlite_master").fetchall() == []
    connection.close()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def begun_by_sqlite_and_no_more(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def gone_but_for_its_wal(path: Path) -> None:
    Path(f"{path}-wal").write_bytes(b"left")


@pytest.mark.parametrize("lose", [emptied, begun_by_sqlite_and_no_more, gone_but_for_its_wal])
async def test_a_store_that_was_lost_is_not_taken_for_a_new_cluster(path: Path, lose) -> None:
    lose(path)
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(base.StorageFailed, match="put a backup of both files back, or remove"):
        await SqliteStorage(path).open()
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before


async def test_a_new_cluster_is_logged_and_begins_whole_or_not_at_all(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    Path(f"{path}.new").write_bytes(b"half, from a start that was killed")
    for _ in range(2):
        storage = SqliteStorage(path)
        await storage.open()
        await storage.close()
    assert caplog.messages == [f"a new cluster begins: there was no {path}"]
    assert not Path(f"{path}.new").exists()


async def test_revisions_go_on_after_those_of_before_when_an_older_store_is_put_back(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = SqliteStorage(path)
    await storage.open()
    kept = await storage.create("/pods/a/kept", b"1")
    await storage.close()
    backup = path.read_bytes()

    storage = SqliteStorage(path)
    await storage.open()
    lost = await storage.create("/pods/a/lost", b"1")
    await storage.close()
    path.write_bytes(backup)
    for newest in (lost, None):
        storage = SqliteStorage(path)
        await storage.open()
        assert storage.list("/pods/").items[:1] == [kept]
        if newest:
            with pytest.raises(base.Compacted):  # whoever has seen it reads everything again
                storage.watch("/pods/", newest.revision)
            assert (await storage.create("/pods/a/new", b"1")).revision > newest.revision + 1
        await storage.close()
    assert caplog.messages == [
        f"{path} is older than what was here: revisions go on after {lost.revision}, watchers list"
        " again"
    ]


async def test_a_missing_directory_is_made_for_the_owner_alone(tmp_path: Path) -> None:
    storage = SqliteStorage(tmp_path / "new" / "state.db")
    await storage.open()
    await storage.close()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(base.StorageFailed, match=r"file/state\.db"):
        await SqliteStorage(tmp_path / "file" / "state.db").open()


async def test_commits_are_synced_in_full(path: Path, monkeypatch) -> None:
    connect, made = sqlite3.connect, []
    monkeypatch.setattr(
        sqlite3, "connect", lambda *a, **k: made.append(connect(*a, **k)) or made[-1]
    )
    medium = sqlite.SqliteMedium(path)
    medium.open()
    connection = made[-1]
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    medium.close()


async def test_a_commit_is_one_statement(path: Path, monkeypatch) -> None:
    """Around each the writer waits for the event loop to let it compute again."""
    statements: list[str] = []

    class Traced(sqlite3.Connection):
        def execute(self, statement: str, *parameters) -> sqlite3.Cursor:
            statements.append(statement)
            return super().execute(statement, *parameters)

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Traced))
    storage = SqliteStorage(path)
    await storage.open()
    statements.clear()
    await storage.create("/pods/b/x", b"1")
    assert len(statements) == 1, statements
    made = await asyncio.gather(*(storage.create(f"/pods/a/{n}", b"1") for n in range(1000)))
    assert len(statements) < 20, len(statements)
    statements.clear()
    await asyncio.gather(
        *(storage.update(one.key, b"2", one.revision) for one in made[:500]),
        *(storage.delete(one.key) for one in made[500:]),
        storage.delete("/pods/b/x"),
    )
    assert len(statements) < 20, len(statements)
    revision = storage.revision
    await storage.close()

    await storage.open()
    assert [(one.key, one.data) for one in storage.list("/pods/").items] == sorted(
        (one.key, b"2") for one in made[:500]
    )
    assert storage.revision == revision
    await storage.close()


async def test_of_changes_to_one_object_in_one_commit_the_last_one_stays(path: Path) -> None:
    storage = SqliteStorage(path)
    await storage.open()
    await asyncio.gather(
        storage.create("/pods/a/changed", b"1"),
        storage.update("/pods/a/changed", b"2", 1),
        storage.create("/pods/a/deleted", b"1"),
        storage.delete("/pods/a/deleted"),
        storage.create("/pods/a/again", b"1"),
        storage.delete("/pods/a/again"),
        storage.create("/pods/a/again", b"3"),
    )
    await storage.close()
    await storage.open()
    found = {one.key: (one.revision, one.data) for one in storage.list("/pods/").items}
    assert found == {"/pods/a/changed": (2, b"2"), "/pods/a/again": (7, b"3")}
    await storage.close()


@contextlib.contextmanager
def no_file_grows(beyond: int = 0) -> Iterator[None]:
    """Every write to a file fails, of this whole process, as on a medium gone read-only.

    Or of what lies `beyond` so many bytes.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (beyond, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_check_notices_a_medium_that_refuses_writes_though_no_client_writes(
    path: Path,
) -> None:
    storage = SqliteStorage(path)
    await storage.open()
    for _ in range(2):
        await storage.check()
        with no_file_grows(), pytest.raises(base.StorageFailed, match="cannot write"):
            await storage.check()
    await storage.check()
    assert storage.revision == 0
    await storage.close()


@pytest.mark.parametrize(
    ("cause", "works"), [(errno.EDQUOT, True), (errno.ENOSPC, True), (errno.EIO, False)]
)
async def test_a_quota_that_is_used_up_is_a_full_disk_and_a_broken_one_is_not(
    path: Path, monkeypatch: pytest.MonkeyPatch, cause: int, works: bool
) -> None:
    """The kernel refuses writes here as it would then, and SQLite says no more than that."""
    storage = SqliteStorage(path)
    await storage.open()
    stored = await storage.create("/pods/a/x", os.urandom(3000))
    for _ in range(10):  # until the log is longer than the file
        stored = await storage.update(stored.key, os.urandom(3000), stored.revision)

    def refused(*_: object) -> None:
        raise OSError(cause, os.strerror(cause))

    monkeypatch.setattr(os, "posix_fallocate", refused)
    with no_file_grows(beyond=Path(f"{path}-wal").stat().st_size):
        if works:
            await storage.delete(stored.key)
            with pytest.raises(base.StorageFailed, match="full"):
                await storage.create("/pods/a/new", b"1")
        else:
            with pytest.raises(base.StorageFailed, match="disk I/O error"):
                await storage.delete(stored.key)
    await storage.close()


async def test_a_check_says_that_the_disk_is_full_though_the_log_has_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects cannot be created then, and nobody was told."""
    storage = SqliteStorage(path)
    await storage.open()
    for _ in range(10):
        await storage.check()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(base.StorageFull, match="cannot create"):
            await storage.check()
    await storage.check()
    await storage.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path) -> None:
    with (disk / "fill").open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


@pytest.mark.real
@pytest.mark.may_block
async def test_on_a_full_disk_objects_are_deleted_and_changed_also_after_a_restart(
    small_disk: Path,
) -> None:
    path = small_disk / "state.db"
    storage = SqliteStorage(path)
    await storage.open()
    kept = [await storage.create(f"/pods/a/{number}", os.urandom(3000)) for number in range(200)]
    fill(small_disk)
    number = 0
    with pytest.raises(base.StorageFailed, match="full"):
        for number in range(10_000):
            await storage.create(f"/pods/b/{number}", os.urandom(3000))
    for stored in kept[:50]:
        changed = await storage.update(stored.key, os.urandom(3000), stored.revision)
        await storage.delete(changed.key)
    fill(small_disk)
    with pytest.raises(base.StorageFailed, match="full"):  # what is left is not for new objects
        await storage.create("/pods/a/new", os.urandom(3000))
    with pytest.raises(base.StorageFull):
        await storage.check()
    await storage.close()

    again = SqliteStorage(path)
    await again.open()
    assert len(again.list("/pods/").items) == 150 + number
    for stored in kept[50:]:
        await again.delete(stored.key)
    (small_disk / "fill").unlink()
    await again.check()
    await again.create("/pods/a/new", b"1")
    await again.close()


@pytest.mark.real
@pytest.mark.may_block
async def test_a_check_on_a_full_disk_whose_log_has_no_room_leaves_room_for_deletions(
    small_disk: Path,
) -> None:
    storage = SqliteStorage(small_disk / "state.db")
    await storage.open()
    stored = await storage.create("/pods/a/x", os.urandom(3000))
    fill(small_disk)
    for _ in range(50):
        with pytest.raises(base.StorageFull):
            await storage.check()
    await storage.delete(stored.key)
    await storage.close()
