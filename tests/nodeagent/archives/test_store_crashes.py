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

from nodeagent.archives.archive_index import Shelf
from nodeagent.archives.encryption import Encryption
from nodeagent.archives.manifest import Manifest
from nodeagent.archives.store import CheckpointStore

ID = "c0ffee"
NAME = "checkpoint-web_shop-app-2026-01-31T12:00:00Z.tar"
CHANGES = ("open", "link", "unlink", "replace", "fsync", "fchmod", "write", "mkdir")
KEY = pyrage.x25519.Identity.generate()


class Killed(BaseException):
    """The process is gone: nothing of it runs on."""


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
    """All that the agent does to the store for one checkpoint."""
    store.prepare()
    path = store.begin(ID, Manifest("", pod="web"))
    Path(path).write_bytes(b"memory" * 10_000)  # by the runtime, which is another process
    sealed = store.seal(ID)
    name = NAME + store.suffix
    store.publish(
        ID, Manifest(name, size_bytes=sealed.size_bytes, sha256=sealed.sha256, container="app")
    )
    store.discard(ID)


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_kill_at_any_change_leaves_a_whole_archive_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encrypted: bool
) -> None:
    encryption = Encryption([str(KEY.to_public())]) if encrypted else None
    made = 0
    for allowed in range(200):
        root = tmp_path / str(allowed)
        root.mkdir()
        store = CheckpointStore(str(root), encryption)
        with monkeypatch.context() as patch, contextlib.suppress(Killed):
            Kill(allowed).patch(patch)
            try:
                checkpoint(store)
                made += 1  # the whole of it went through
            finally:  # threads of a dead process do not run on; these can change nothing more
                for follower in filter(None, store._under_way.values()):
                    follower.stop()
        survives(root, encryption)
        if made:
            break
    assert made, "the checkpoint never came to its end"
    assert allowed > 10, "too few changes were seen to be a checkpoint"


def survives(root: Path, encryption: Encryption | None) -> None:
    """What the next agent finds and makes of it."""
    shelf, store = Shelf(str(root)), CheckpointStore(str(root), encryption)
    interrupted = store.prepare()
    assert set(interrupted) <= {ID}
    for container_id in interrupted:
        store.discard(container_id)
    archives = shelf.archives()
    assert all(shelf.verify(archive) == "" for archive in archives)
    expected = [name for archive in archives for name in (archive.name, f"{archive.name}.json")]
    assert sorted(os.listdir(shelf.path)) == sorted(expected)
    if not archives:
        checkpoint(store)
        assert len(shelf.archives()) == 1
