"""The files that survive an agent: whole, or refused by name."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.resize import state_file
from nodeagent.pods.resize.state_file import StateFile, checksum
from orch.component.process.atomic_file import replace_file
from orch.component.process.daemon import SetupError

ENTRIES = {"uid": {"a": 1}}


def file(tmp_path: Path) -> StateFile:
    return StateFile(tmp_path / "state", "what pods were granted")


def test_what_is_written_is_read_by_the_next_agent(tmp_path: Path) -> None:
    assert file(tmp_path).read() == {}
    file(tmp_path).write(ENTRIES)
    assert file(tmp_path).read() == ENTRIES
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o600


def other_data(blob: bytes) -> bytes:
    return blob.replace(b'\\"a\\":1', b'\\"a\\":2')


def no_entries(_blob: bytes) -> bytes:
    return json.dumps({"data": '{"entries":[]}', "checksum": checksum('{"entries":[]}')}).encode()


@pytest.mark.parametrize(
    "damage",
    [other_data, no_entries, lambda blob: blob[:-5], lambda _: b"", lambda _: b"[1]",
     lambda _: b"[" * 100_000, lambda blob: blob + b" " * (65 << 20)],
)  # fmt: skip
def test_a_damaged_file_is_named_and_refused(tmp_path: Path, damage) -> None:
    file(tmp_path).write(ENTRIES)
    path = tmp_path / "state"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SetupError) as refused:
        file(tmp_path).read()
    assert str(refused.value).startswith(f"cannot restore what pods were granted from {path}: ")
    assert "drain this node, delete the file" in str(refused.value)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "state")
    with pytest.raises(SetupError, match="not a regular file"):
        file(tmp_path).read()


async def test_only_changes_are_written_and_a_failure_is_told_and_made_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = file(tmp_path)
    assert await kept.save(dict)
    assert not (tmp_path / "state").exists()
    os.mkdir(tmp_path / "state")
    assert not await kept.save(lambda: ENTRIES)
    assert "cannot keep what pods were granted in" in caplog.text
    os.rmdir(tmp_path / "state")
    assert await kept.save(lambda: ENTRIES)
    assert kept.read() == ENTRIES


async def test_what_the_file_has_is_not_written_again_nor_what_went_from_it(
    tmp_path: Path,
) -> None:
    file(tmp_path).write({**ENTRIES, "other": {}})
    kept = file(tmp_path)
    kept.read()
    before = os.stat(tmp_path / "state").st_ino
    assert await kept.save(lambda: ENTRIES)
    assert os.stat(tmp_path / "state").st_ino == before
    assert await kept.save(lambda: {"uid": {"a": 2}})
    assert file(tmp_path).read() == {"uid": {"a": 2}}


async def test_what_could_not_be_written_is_not_taken_for_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new file may be in its place all the same, when only its directory cannot be flushed."""
    kept = file(tmp_path)
    assert await kept.save(lambda: ENTRIES)

    def unflushed(path: str, content: bytes, **kwargs: Any) -> None:
        replace_file(path, content, **kwargs)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(state_file, "replace_file", unflushed)
        assert not await kept.save(lambda: {"uid": {"a": 2}})
    assert await kept.save(lambda: ENTRIES)
    assert file(tmp_path).read() == ENTRIES
