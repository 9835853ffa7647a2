"""The SQLite writer is killed at any instant of its work; what it answered must be there."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orch.server.storage.base import Compacted
from orch.server.storage.sqlite import SqliteStorage
from tests.orch.server.storage import crashwriter

pytestmark = pytest.mark.slow

LONGEST_S = 0.3  # of a writer's life after its first answer


def answered_before_kill(path: Path, life_s: float) -> list[list[str]]:
    """Run the writer, kill -9 it so long after its first answer; everything it had printed."""
    command = [sys.executable, crashwriter.__file__, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path.cwd())
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    timer = threading.Timer(life_s, process.kill)
    timer.start()
    lines += process.stdout.readlines()
    timer.join()
    process.stdout.close()
    assert process.wait() == -9
    return [line.decode().split() for line in lines if line.endswith(b"\n")]


def newest_per_key(answered: list[list[str]]) -> dict[str, tuple[int, str | None]]:
    """key → (revision, data; None: deleted)."""
    newest: dict[str, tuple[int, str | None]] = {}
    for _, key, revision, *data in answered:
        newest[key] = max(newest.get(key, (0, None)), (int(revision), data[0] if data else None))
    return newest


async def kill_and_look(path: Path, rounds: int, seed: int) -> None:
    """Each round goes on with the file that the last one left."""
    chance = random.Random(seed)
    newest_seen = 0
    expected: dict[str, tuple[int, str | None]] = {}
    for _ in range(rounds):
        answered = answered_before_kill(path, chance.random() ** 2 * LONGEST_S)
        revisions = [int(line[2]) for line in answered]
        assert len(set(revisions)) == len(revisions)
        assert min(revisions) > newest_seen, "a revision was given twice"
        expected.update(newest_per_key(answered))

        storage = SqliteStorage(path)
        await storage.open()
        assert storage.revision >= max(revisions)
        newest_seen = storage.revision
        for key, (revision, data) in expected.items():
            stored = storage.get(key)
            if stored is None:  # a later, unanswered deletion may have been committed
                assert data is None or storage.revision > revision
            elif stored.revision == revision:
                assert stored.data.decode() == data
            else:
                assert stored.revision > revision
        await watches_miss_nothing(storage, max(revisions))
        newest_seen = storage.revision
        await storage.close()


async def watches_miss_nothing(storage: SqliteStorage, answered: int) -> None:
    """From what a client saw before the crash, a watch goes on without a gap or is refused."""
    if answered < storage.revision:
        with pytest.raises(Compacted):
            storage.watch("/leases/", answered)
    watch = storage.watch("/leases/", storage.revision)
    stored = await storage.create("/leases/a/probe", b"1")
    gone = await storage.delete("/leases/a/probe")
    changes = []
    while len(changes) < 2:
        changes += await watch.changes() or []
    assert [change.revision for change in changes] == [stored.revision, gone.revision]


async def test_what_was_answered_survives_kill_9_at_any_instant(tmp_path: Path) -> None:
    await kill_and_look(tmp_path / "state.db", rounds=10, seed=random.randrange(1 << 30))


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_what_was_answered_survives_200_kills(tmp_path: Path) -> None:
    await kill_and_look(tmp_path / "state.db", rounds=200, seed=random.randrange(1 << 30))
