"""Logs kept within bounds, as real files under a runtime in memory."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from nodeagent.pods.logs import rotation
from nodeagent.pods.logs.rotation import LogBounds, LogRotation
from nodeagent.pods.logs.termination_messages import MAX_BYTES, TerminationMessages
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.runtime.base import RuntimeCallError, RuntimeTimeout
from orch.component.process import loops
from tests.fakes.pods import UID, exited, instance, logged, sandbox, seen
from tests.fakes.runtime import FakeRuntime


class ReopeningRuntime(FakeRuntime):
    """Begins a new log when told to, as containerd does."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log = log

    async def reopen_log(self, container_id: str) -> None:
        await self.begin("reopen_log", container_id)
        self.log.touch()


class Rotated:
    def __init__(self, directory: Path, *, max_files: int = 3, interval_s: float = 0.5) -> None:
        self.log = directory / "0.log"
        self.runtime = ReopeningRuntime(self.log)
        self.registry = PodRegistry(PodSettings("node1", "/r", "/l"))
        self.show(running=True)
        self._time = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
        bounds = LogBounds(max_bytes=100, max_files=max_files, interval_s=interval_s)
        self.rotation = LogRotation(self.runtime, self.registry, bounds, now=self._now)

    def show(self, *, running: bool) -> None:
        detail = instance() if running else exited()
        self.registry.set_view(seen(sandbox(), logged(detail, self.log)))

    def _now(self) -> datetime:
        self._time += timedelta(seconds=1)
        return self._time

    async def fill(self, text: str) -> list[str]:
        """Write a log that is too large, and the files after a step."""
        self.log.write_text(text * 101)
        await self.rotation.step()
        return sorted(path.name for path in self.log.parent.iterdir())


@pytest.fixture
def rotated(tmp_path: Path) -> Rotated:
    return Rotated(tmp_path)


async def test_a_log_within_bounds_stays(rotated: Rotated) -> None:
    rotated.log.write_text("x" * 100)
    await rotated.rotation.step()
    assert not rotated.runtime.called("reopen_log")
    assert rotated.log.stat().st_size == 100


async def test_a_large_log_is_set_aside_and_begun_anew(rotated: Rotated) -> None:
    assert await rotated.fill("a") == ["0.log", "0.log.20260131-120001.000000"]
    assert rotated.log.read_text() == ""
    assert rotated.runtime.called("reopen_log") == ["app0"]


async def test_older_files_are_compressed_and_the_oldest_go(rotated: Rotated) -> None:
    await rotated.fill("a")
    assert await rotated.fill("b") == [
        "0.log",
        "0.log.20260131-120001.000000.gz",
        "0.log.20260131-120002.000000",
    ]
    assert await rotated.fill("c") == [
        "0.log",
        "0.log.20260131-120002.000000.gz",
        "0.log.20260131-120003.000000",
    ]
    [packed] = rotated.log.parent.glob("*.gz")
    assert gzip.decompress(packed.read_bytes()) == b"b" * 101


@pytest.mark.parametrize("max_files", [1, 2])
async def test_the_number_of_files_is_kept(tmp_path: Path, max_files: int) -> None:
    rotated = Rotated(tmp_path, max_files=max_files)
    for text in "abcd":
        assert len(await rotated.fill(text)) == max_files


async def test_a_compression_broken_off_leaves_no_rubbish(rotated: Rotated) -> None:
    (rotated.log.parent / "0.log.20260131-110000.000000.tmp").write_text("half")
    assert await rotated.fill("a") == ["0.log", "0.log.20260131-120001.000000"]


async def test_a_runtime_that_does_not_reopen_gets_its_log_back(
    rotated: Rotated, caplog: pytest.LogCaptureFixture
) -> None:
    rotated.runtime.fail("reopen_log", RuntimeCallError("reopen_log", "busy"))
    for _ in range(3):
        assert await rotated.fill("a") == ["0.log"]
    assert rotated.log.stat().st_size == 101
    assert caplog.text.count("cannot rotate the log") == 1
    rotated.runtime.heal("reopen_log")
    assert len(await rotated.fill("a")) == 2


async def test_an_agent_that_ends_while_the_runtime_hangs_gives_the_log_its_name_back(
    rotated: Rotated,
) -> None:
    held = rotated.runtime.hold("reopen_log")
    rotated.log.write_text("a" * 101)
    step = loops.spawn(rotated.rotation.step(), name="step")
    await held.reached.wait()
    await loops.cancel(step)
    assert [path.name for path in rotated.log.parent.iterdir()] == ["0.log"]


async def test_a_log_that_was_begun_anew_without_an_answer_is_kept(rotated: Rotated) -> None:
    async def begin_and_fail(container_id: str) -> None:
        await asyncio.to_thread(rotated.log.write_text, "new")
        raise RuntimeTimeout("reopen_log", "no answer within 2 s")

    rotated.runtime.reopen_log = begin_and_fail  # type: ignore[method-assign]
    assert await rotated.fill("a") == ["0.log", "0.log.20260131-120001.000000"]
    assert rotated.log.read_text() == "new"


async def test_compressing_on_a_full_disk_leaves_no_half_file(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fill_up(_source: IO[bytes], target: IO[bytes]) -> None:
        target.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    [_, aside] = await rotated.fill("a")
    monkeypatch.setattr(shutil, "copyfileobj", fill_up)
    assert await rotated.fill("b") == ["0.log", aside, "0.log.20260131-120002.000000"]
    assert (rotated.log.parent / aside).read_text() == "a" * 101
    assert "cannot rotate the log" in caplog.text and "No space left" in caplog.text


@pytest.mark.parametrize(("lines", "kept"), [(12, 12), (13, 9), (5000, 9)])
async def test_of_a_file_that_became_much_too_large_the_end_is_kept(
    rotated: Rotated, lines: int, kept: int
) -> None:
    """The maximum is 100 bytes, a line has 10: one in the middle is left out."""
    text = [f"line {number:04}\n" for number in range(lines)]
    rotated.log.write_text("".join(text))
    await rotated.rotation.step()
    [aside] = rotated.log.parent.glob("0.log.*")
    assert aside.read_text() == "".join(text[-kept:])


async def test_a_file_that_cannot_be_cut_on_a_full_disk_goes(
    rotated: Rotated, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fill_up(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "sendfile", fill_up)
    assert await rotated.fill("x\n") == ["0.log"]
    assert "No space left" in caplog.text


async def test_logs_of_ended_containers_and_missing_ones_are_left(rotated: Rotated) -> None:
    await rotated.rotation.step()
    rotated.show(running=False)
    assert await rotated.fill("a") == ["0.log"]


async def test_a_sparse_log_does_not_keep_rotation_busy(rotated: Rotated) -> None:
    """A pod that mounts the logs puts it there: to compress it would take years."""
    await rotated.fill("a")
    os.truncate(next(rotated.log.parent.glob("*.000000")), 1 << 43)
    assert await rotated.fill("b") == [
        "0.log",
        "0.log.20260131-120001.000000",
        "0.log.20260131-120002.000000",
    ]
    assert len(await rotated.fill("c")) == 3, "and it goes like any other"
    assert not (rotated.log.parent / "0.log.20260131-120001.000000").exists()


async def test_a_link_among_rotated_files_is_not_followed(rotated: Rotated, tmp_path: Path) -> None:
    """A pod that mounts the directory of all logs must not have host files copied there."""
    secret = tmp_path.parent / f"{tmp_path.name}-secret"
    secret.write_text("secret")
    (rotated.log.parent / "0.log.20260131-110000.000000").symlink_to(secret)
    assert await rotated.fill("a") == ["0.log", "0.log.20260131-120001.000000"]
    assert secret.read_text() == "secret"


async def test_a_log_directory_that_became_a_link_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "host")
    rotated = Rotated(tmp_path / "logs")
    assert await rotated.fill("a") == ["0.log"]
    assert "cannot rotate the log" in caplog.text
    rotation.remove(str(rotated.log))
    assert [path.name for path in (tmp_path / "host").iterdir()] == ["0.log"]


class FloodingRuntime(ReopeningRuntime):
    """Its container fills each log at once."""

    floods = 3

    async def reopen_log(self, container_id: str) -> None:
        await super().reopen_log(container_id)
        self.floods -= 1
        if self.floods:
            await asyncio.to_thread(self.log.write_text, "x" * 101)


async def test_a_flood_is_rotated_again_within_one_step(tmp_path: Path) -> None:
    rotated = Rotated(tmp_path)
    runtime = FloodingRuntime(rotated.log)
    rotation = LogRotation(runtime, rotated.registry, LogBounds(max_bytes=100, max_files=9))
    rotated.log.write_text("x" * 101)
    await rotation.step()
    assert len(runtime.called("reopen_log")) == 3
    assert rotated.log.stat().st_size == 0


async def test_what_a_flood_set_aside_is_not_compressed_before_the_interval(tmp_path: Path) -> None:
    rotated = Rotated(tmp_path, max_files=4, interval_s=1.5)
    await rotated.fill("a")
    await rotated.fill("b")
    assert not any(path.suffix == ".gz" for path in tmp_path.iterdir())
    names = await rotated.fill("c")
    assert [name.endswith(".gz") for name in names] == [False, True, False, False]


def a_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes of it are used."""
    used, disk = [100 << 20], os.statvfs(path)

    def statvfs(_path: str) -> object:
        free = disk.f_blocks - used[0] // disk.f_frsize
        return SimpleNamespace(f_blocks=disk.f_blocks, f_bfree=free, f_frsize=disk.f_frsize)

    monkeypatch.setattr(os, "statvfs", statvfs)
    return used


@pytest.mark.parametrize("change", [5 << 20, -5 << 20])
async def test_a_disk_whose_use_changes_is_looked_at_before_the_interval_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: int
) -> None:
    """Less, too: what somebody removes may hide what a log takes."""
    rotated, used = Rotated(tmp_path), a_disk(tmp_path, monkeypatch)
    bounds = LogBounds(max_bytes=100, interval_s=3600)
    rotation = LogRotation(rotated.runtime, rotated.registry, bounds, places=[str(tmp_path)])
    await rotation.glance()  # the first
    rotated.log.write_text("x" * 101)
    await rotation.glance()
    assert not rotated.runtime.called("reopen_log")
    used[0] += change
    await rotation.glance()
    assert rotated.runtime.called("reopen_log") == ["app0"]


async def test_what_a_look_removes_hides_nothing_that_comes_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated, used = Rotated(tmp_path), a_disk(tmp_path, monkeypatch)

    async def reopen(_container_id: str) -> None:
        used[0] -= 12 << 20

    monkeypatch.setattr(rotated.runtime, "reopen_log", reopen)
    bounds = LogBounds(max_bytes=100, interval_s=3600)
    rotation = LogRotation(rotated.runtime, rotated.registry, bounds, places=[str(tmp_path)])
    for _ in range(3):
        used[0] += 15 << 20
        rotated.log.write_text("x" * 101)
        await rotation.glance()
        assert not rotated.log.exists(), "it was set aside"


async def test_messages_are_cut_with_each_look(tmp_path: Path) -> None:
    rotated, messages = Rotated(tmp_path), TerminationMessages(str(tmp_path))
    path = messages.path(UID, "app", 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(1 << 20))
    await LogRotation(rotated.runtime, rotated.registry, messages=messages).step()
    assert path.stat().st_size == MAX_BYTES
