"""The embedded default: one SQLite file. The only module that imports sqlite3.

One row per object, updated in place, and one counter row with the newest revision, written in the
same transaction (WAL, synchronous=FULL): what was answered is there after a crash, and no revision
is given twice. The file is locked to one process and readable by its owner only. A new one appears
whole, so that an empty one is a lost store. Changes before the start are not kept: a watch from
before a restart gets `Compacted` and its reader lists again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sqlite3
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from orch.server.storage.base import Change, StorageFailed, StorageFull, Stored
from orch.server.storage.group_commit import GroupCommitStorage

log = logging.getLogger(__name__)

SCHEMA_VERSION = 1
RESERVE_BYTES = 5 * 1024 * 1024  # more than the log's pages, when they are written back
LOCK_WAIT_S = 3.0  # for a predecessor that is still shutting down

_SCHEMA = (
    "CREATE TABLE objects (key TEXT PRIMARY KEY, revision INTEGER NOT NULL, data BLOB NOT NULL)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    "INSERT INTO counters VALUES ('revision', 0)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
_NOTE_BYTES = 4096  # of the reserve
_PAGE_BYTES = 4096
_ROOM_BYTES = 1024 * 1024  # with less left, the disk counts as full: larger objects are refused
_LOG_PAGES = 600  # about so many are written back after a commit; at 1000 SQLite does it amid one
_SKIPPED = 1_000_000  # revisions: more than are given between two notes
_FULL = "database or disk is full"  # as SQLite says it
_ADVICE = "put a backup of both files back, or remove them to begin a new cluster"
# A commit is one statement, through a view that only the connection has: around each statement the
# writer gives the interpreter away several times, and may wait for it. Data that is NULL deletes.
_VIEW = (
    "CREATE TEMP VIEW changes AS SELECT key, revision, data FROM objects",
    """CREATE TEMP TRIGGER change INSTEAD OF INSERT ON changes BEGIN
        INSERT INTO objects SELECT NEW.key, NEW.revision, NEW.data WHERE NEW.data IS NOT NULL
            ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, data = excluded.data;
        DELETE FROM objects WHERE NEW.data IS NULL AND key = NEW.key;
        UPDATE counters SET value = max(value, NEW.revision) WHERE name = 'revision';
    END""",
)
_CHANGE = "INSERT INTO changes VALUES "
_ROWS = 256  # of one statement
_COUNT = "UPDATE counters SET value = ? WHERE name = 'revision'"
# SQLite writes no page whose content stays the same: only a value that changes asks the medium.
_CHECK = (
    "INSERT INTO counters VALUES ('checks', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"
)


class SqliteStorage(GroupCommitStorage):
    """`base.Storage` on the file at `path`; creates the file and its directory when missing."""

    def __init__(self, path: Path) -> None:
        super().__init__(SqliteMedium(path))


class SqliteMedium:
    """The file, for one thread at a time; see `group_commit.Medium`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wal = Path(f"{path}-wal")
        self._reserve = _Reserve(Path(f"{path}-reserve"))
        self._connection: sqlite3.Connection | None = None
        self._logged = 0  # pages since the log was written back, about

    def open(self) -> tuple[list[Stored], int]:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._path.exists():
                self._begin()
            self._connection = self._connect()
            items, revision = self._load(self._connection)
            self._reserve.refill(revision)
            return items, revision
        except (OSError, sqlite3.Error, StorageFailed) as error:
            self.close()
            if isinstance(error, StorageFailed):
                raise
            raise StorageFailed(f"cannot open {self._path}: {_why(error)}") from error

    def commit(self, changes: Sequence[Change], revision: int) -> None:
        """One transaction; it writes even without changes, so that it checks the medium."""
        connection = self._connection
        if connection is None:
            raise StorageFailed(f"{self._path} is not open")
        try:
            self._commit(connection, changes, revision)
            if not changes:
                self._reserve.refill(revision)
                if self._reserve.is_spent or self._reserve.has_no_room(_ROOM_BYTES):
                    raise StorageFull(f"cannot create objects in {self._path}: {_FULL}")
        except sqlite3.Error as error:
            raise StorageFailed(f"cannot write {self._path}: {_why(error)}") from error
        self._logged += 1 + sum(map(_pages, changes))

    def tidy(self) -> None:
        """Write the log back when it is long, which takes 8 to 15 ms."""
        if self._logged < _LOG_PAGES or self._connection is None:
            return
        self._logged = 0
        with contextlib.suppress(sqlite3.Error):  # SQLite tries again when the log is longer
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _commit(
        self, connection: sqlite3.Connection, changes: Sequence[Change], revision: int
    ) -> None:
        """On a full disk from the reserve, unless that makes the store larger."""
        begins = any(change.previous is None for change in changes)
        if begins and self._reserve.is_spent:
            raise StorageFailed(f"cannot write {self._path}: {_FULL}")
        try:
            _transact(connection, changes)
        except sqlite3.OperationalError as error:
            if begins or not self._is_full(error):
                raise
            self._reserve.spend()
            # What is in the log goes to the file, and the log begins anew in the same place.
            connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
            _transact(connection, changes)

    def _is_full(self, error: sqlite3.OperationalError) -> bool:
        """SQLite tells a full disk from a quota that is used up, which it calls a failed write."""
        if error.sqlite_errorcode == sqlite3.SQLITE_IOERR_WRITE:
            return self._reserve.has_no_room()
        return error.sqlite_errorcode == sqlite3.SQLITE_FULL

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._reserve.note(_revision(connection))
            connection.close()

    def size_bytes(self) -> int:
        total = 0
        for path in (self._path, self._wal):
            try:
                total += path.stat().st_size
            except FileNotFoundError:
                continue
        return total

    def _begin(self) -> None:
        """Make an empty store under another name first."""
        if self._wal.exists():
            raise StorageFailed(f"{self._path} is missing, but {self._wal} is there: {_ADVICE}")
        unfinished = Path(f"{self._path}.new")
        unfinished.unlink(missing_ok=True)
        # Created before SQLite sees it: its -wal and -shm files take this file's mode.
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as connection:
            for statement in ("BEGIN", *_SCHEMA, "COMMIT"):
                connection.execute(statement)
        os.link(unfinished, self._path)
        unfinished.unlink()
        log.info("a new cluster begins: there was no %s", self._path)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False,
            cached_statements=2 * _ROWS,
        )  # fmt: skip
        # Exclusive before WAL: a second server on this file fails here, not midway.
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            self._require_store(connection)
            for pragma in ("journal_mode = WAL", "synchronous = FULL"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            for statement in _VIEW:
                connection.execute(statement)
        except (sqlite3.Error, StorageFailed):
            connection.close()
            raise
        return connection

    def _require_store(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            raise StorageFailed(f"{self._path} is empty, it holds no cluster: {_ADVICE}")
        if version != SCHEMA_VERSION:
            raise StorageFailed(
                f"{self._path} has schema version {version}, this program writes {SCHEMA_VERSION}:"
                " run the version that wrote it"
            )

    def _load(self, connection: sqlite3.Connection) -> tuple[list[Stored], int]:
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
        rows = connection.execute("SELECT key, revision, data FROM objects ORDER BY key")
        items = [Stored(key, revision, data) for key, revision, data in rows]
        revision, noted = _revision(connection), self._reserve.noted()
        if revision < noted:
            text = "%s is older than what was here: revisions go on after %d, watchers list again"
            log.warning(text, self._path, noted)
            revision = noted + _SKIPPED
            connection.execute(_COUNT, (revision,))
        return items, revision


class _Reserve:
    """Room on the disk for deletions and changes when it is full; there may be none to have.

    It begins with the newest revision, so that an older store that is put back is noticed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.is_spent = False

    def refill(self, revision: int) -> None:
        try:
            with self._opened() as file:
                if os.fstat(file.fileno()).st_size < RESERVE_BYTES:
                    os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
            self.is_spent = False
        except OSError as error:
            self.is_spent = error.errno in (errno.ENOSPC, errno.EDQUOT)
        self.note(revision)

    def has_no_room(self, size: int = _PAGE_BYTES) -> bool:
        """Whether the disk, or the server's part of it, does not take so much more."""
        try:
            with tempfile.TemporaryFile(dir=self._path.parent) as file:
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            return error.errno in (errno.ENOSPC, errno.EDQUOT)
        return False

    def spend(self) -> None:
        self.is_spent = True
        with contextlib.suppress(OSError):
            os.truncate(self._path, _NOTE_BYTES)

    def note(self, revision: int) -> None:
        with contextlib.suppress(OSError), self._opened() as file:
            os.pwrite(file.fileno(), b"%020d" % revision, 0)

    def noted(self) -> int:
        """0: nothing is known."""
        try:
            with self._opened() as file:
                text = os.pread(file.fileno(), 20, 0)
        except OSError:
            return 0
        return int(text) if text.isdigit() else 0

    def _opened(self) -> BinaryIO:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        return os.fdopen(os.open(self._path, flags, 0o600), "rb")


def _revision(connection: sqlite3.Connection) -> int:
    return int(
        connection.execute("SELECT value FROM counters WHERE name = 'revision'").fetchone()[0]
    )


def _pages(change: Change) -> int:
    """How many a change writes, at most about: what it frees may be noted as well."""
    states = [stored.data for stored in (change.previous, change.current) if stored]
    return (1 if len(states) == 2 else 5) + sum(map(len, states)) // _PAGE_BYTES


def _transact(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Of each key its last state; in one statement, which is a transaction, unless it is long."""
    last = {change.key: change for change in changes}.values()
    rows = [(one.key, one.revision, one.current and one.current.data) for one in last]
    if len(rows) <= _ROWS:
        _write(connection, rows)
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for start in range(0, len(rows), _ROWS):
            _write(connection, rows[start : start + _ROWS])
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def _write(connection: sqlite3.Connection, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        places = ", ".join(["(?, ?, ?)"] * len(rows))
        connection.execute(_CHANGE + places, tuple(chain.from_iterable(rows)))
    else:
        connection.execute(_CHECK)


def _why(error: OSError | sqlite3.Error) -> str:
    if isinstance(error, sqlite3.Error) and "locked" in str(error):
        return "another process has it open; stop that process or use another file"
    return str(error)
