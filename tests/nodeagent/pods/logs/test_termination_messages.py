"""Termination messages: read within their limit, and kept from filling the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeagent.pods.logs.termination_messages import MAX_BYTES, TerminationMessages
from tests.fakes.pods import UID, container_data, exited, instance, logged, pod, sandbox, seen

CONTAINER = pod(container_data("app")).spec.containers[0]


async def test_what_a_running_container_writes_past_the_limit_is_cut(tmp_path: Path) -> None:
    messages = TerminationMessages(str(tmp_path))
    path = Path((await messages.mount(UID, CONTAINER, 0)).host_path)
    path.write_bytes(b"reason" + bytes(1 << 20))
    await messages.cut([seen(sandbox(), instance())])
    assert path.stat().st_size == MAX_BYTES
    assert path.read_bytes().startswith(b"reason")


async def test_an_ordinary_message_is_left_alone(tmp_path: Path) -> None:
    messages = TerminationMessages(str(tmp_path))
    path = Path((await messages.mount(UID, CONTAINER, 0)).host_path)
    path.write_bytes(b"x" * 5000)
    await messages.cut([seen(sandbox(), instance())])
    assert path.stat().st_size == 5000


async def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    messages = TerminationMessages(str(tmp_path))
    path = Path((await messages.mount(UID, CONTAINER, 0)).host_path)
    other = tmp_path / "other"
    other.write_bytes(bytes(1 << 20))
    path.unlink()
    path.symlink_to(other)
    await messages.cut([seen(sandbox(), instance())])
    assert other.stat().st_size == 1 << 20


@pytest.mark.parametrize("sparse_bytes", [0, 1 << 43])
async def test_the_end_of_a_log_is_found_whatever_lies_before(
    tmp_path: Path, sparse_bytes: int
) -> None:
    """A pod that mounts the logs could make a sparse one that takes years to read."""
    log = tmp_path / "logs" / "app" / "0.log"
    log.parent.mkdir(parents=True)
    log.touch()
    os.truncate(log, sparse_bytes)
    with log.open("ab") as stream:
        stream.write(b"\n2026-01-31T12:00:00Z stdout F it broke\n")
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    [record] = pod(container_data("app", **policy)).spec.containers
    ended = seen(sandbox(), logged(exited(), log))
    assert await TerminationMessages(str(tmp_path)).of(ended, [record]) == {"app0": "it broke\n"}


async def test_a_message_is_cut_once_its_container_has_exited(tmp_path: Path) -> None:
    messages = TerminationMessages(str(tmp_path))
    path = Path((await messages.mount(UID, CONTAINER, 0)).host_path)
    with path.open("wb") as file:
        file.write(b"why")
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
    ended = seen(sandbox(), exited())
    shown = await messages.of(ended, [CONTAINER])
    assert [text[:3] for text in shown.values()] == ["why"]
    assert path.stat().st_size == MAX_BYTES
