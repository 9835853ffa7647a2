"""The archive: private, never over another file, scrubbed, gone when it cannot be finished."""

from __future__ import annotations

import stat
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nodeagent.debug.bundle import Entry, write_bundle
from orch.component.process.daemon import SetupError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def keep(text: bytes) -> bytes:
    return text


def test_entries_are_in_the_archive_cleaned_and_private(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    entries = [("a.txt", b"one"), ("pages/b.txt", b"two")]
    assert write_bundle(str(path), entries, bytes.upper, now=NOW) == 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as tar:
        members = {member.name: member for member in tar}
        assert list(members) == ["nodeagent-debug/a.txt", "nodeagent-debug/pages/b.txt"]
        file = tar.extractfile("nodeagent-debug/pages/b.txt")
        assert file and file.read() == b"TWO"
        assert {member.mode for member in members.values()} == {0o600}


def test_a_file_or_a_link_that_is_there_is_not_touched(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    for path in (victim, link):
        with pytest.raises(SetupError, match=f"cannot write {path}: "):
            write_bundle(str(path), [("a", b"")], keep, now=NOW)
    assert victim.read_text() == "precious"


def broken(error: BaseException) -> Iterator[Entry]:
    yield "a.txt", b"x"
    raise error


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("x")])
def test_what_cannot_be_finished_is_removed(tmp_path: Path, error: Exception) -> None:
    path = tmp_path / "b.tar.gz"
    with pytest.raises((SetupError, ValueError)):
        write_bundle(str(path), broken(error), keep, now=NOW)
    assert not path.exists()
