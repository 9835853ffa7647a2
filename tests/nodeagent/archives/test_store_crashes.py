"""An agent killed at any point of a checkpoint: the next one finds whole archives or none.

The store's calls that change the disk are counted, and the agent "dies" at each of them in turn,
before it takes effect. What the kernel was told before stays.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pyrage
import pytest

from nodeagent.archives.archive_index import ArchiveIndex
from nodeagent.archives.encryption import Encryption
from nodeagent.archives.manifest import Manifest
from nodeagent.archives.store import CheckpointStore
from nodeagent.archives.streaming import ArchiveTail

ID = "c0ffee"
NAME = "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"
CHANGES = ("open", "link", "unlink", "replace", "fsync", "fchmod", "write", "mkdir")
KEY = pyrage.x25519.Identity.generate()


class Killed(BaseException):
    """The process has ended."""


class Kill:
    """Lets the first `allowed` changes of the disk happen, and no more."""

    def __init__(self, allowed: int) -> None:
        self.left = allowed

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        for name in CHANGES:
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if real.__name__ == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)  # changes nothing
            if self.left <= 0:
                raise Killed
            self.left -= 1
            return real(*args, **kwargs)

        return call


def checkpoint(store: CheckpointStore) -> None:
    """All calls of the store for one checkpoint."""
    store.prepare()
    path = store.begin(ID, Manifest("", pod="web"))
    Path(path).write_bytes(b"memory" * 10_000)  # by the runtime, which is another process
    digest = store.seal(ID)
    name = NAME + store.suffix
    store.publish(
        ID, Manifest(name, size_bytes=digest.size_bytes, sha256=digest.sha256, container="app")
    )
    store.discard(ID)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_kill_at_any_change_leaves_a_whole_archive_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tails: list[ArchiveTail], encrypted: bool
) -> None:
    encryption = Encryption([str(KEY.to_public())]) if encrypted else None
    completed = False
    for allowed in range(200):
        root = tmp_path / str(allowed)
        root.mkdir()
        store = CheckpointStore(str(root), encryption)
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            Kill(allowed).patch(patch)
            try:
                checkpoint(store)
                completed = True
            finally:  # threads of a dead process end with it
                for tail in tails:
                    tail.cancel()
        assert_recovers(root, encryption)
        if completed:
            break
    assert completed, "the checkpoint never finished"
    assert allowed > 10, "too few changes were seen to be a checkpoint"


def assert_recovers(root: Path, encryption: Encryption | None) -> None:
    """The next agent finds whole archives, or can make one."""
    index, store = ArchiveIndex(str(root)), CheckpointStore(str(root), encryption)
    interrupted = store.prepare()
    assert set(interrupted) <= {ID}
    for container_id in interrupted:
        store.discard(container_id)
    archives = index.archives()
    assert all(index.verify(archive) == "" for archive in archives)
    expected = [name for archive in archives for name in (archive.name, f"{archive.name}.json")]
    assert sorted(os.listdir(index.path)) == sorted(expected)
    if not archives:
        checkpoint(store)
        assert len(index.archives()) == 1
