"""The SQLite writer is killed in the middle of its work; what it answered must be there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orch.server.storage.sqlite import SqliteStorage
from tests.orch.server.storage import crashwriter

ROUNDS = 6


def answered_before_kill(path: Path, writes: int) -> list[list[str]]:
    """Run the writer, kill -9 it after that many answers; everything it had printed."""
    command = [sys.executable, crashwriter.__file__, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path.cwd())
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(writes)]
    process.kill()
    lines += process.stdout.readlines()
    process.stdout.close()
    assert process.wait() == -9
    return [line.decode().split() for line in lines if line.endswith(b"\n")]


def newest_per_key(answered: list[list[str]]) -> dict[str, tuple[int, str | None]]:
    """key → (revision, data; None: deleted)."""
    newest: dict[str, tuple[int, str | None]] = {}
    for _, key, revision, *data in answered:
        newest[key] = max(newest.get(key, (0, None)), (int(revision), data[0] if data else None))
    return newest


@pytest.mark.parametrize("writes", [40])
async def test_every_answered_write_survives_kill_9_and_no_revision_is_reused(
    tmp_path: Path, writes: int
) -> None:
    path = tmp_path / "state.db"
    seen: set[int] = set()
    for round_number in range(ROUNDS):
        answered = answered_before_kill(path, writes + 61 * round_number)
        revisions = [int(line[2]) for line in answered]
        assert len(set(revisions)) == len(revisions)
        assert not seen & set(revisions)
        seen |= set(revisions)

        storage = SqliteStorage(path)
        await storage.open()
        assert storage.revision >= max(seen)
        for key, (revision, data) in newest_per_key(answered).items():
            stored = storage.get(key)
            if stored is None:  # a later, unanswered deletion may have been committed
                assert data is None or storage.revision > revision
            elif stored.revision == revision:
                assert stored.data.decode() == data
            else:
                assert stored.revision > revision
        await storage.close()
