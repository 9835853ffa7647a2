"""The lock file: taken, waited for, given up. Whole agents at it are in test_main."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodeagent import lock
from orch.component.process.daemon import SetupError, Stop
from orch.component.process.loops import cancel, spawn

pytestmark = pytest.mark.may_block

HOLDER = """
import sys
from orch.component.process import files
files.acquire(sys.argv[1], holder="x")
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent.lock")


@pytest.fixture
def holder(path: str) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the lock until its input ends."""
    command = [sys.executable, "-c", HOLDER, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


async def test_a_held_lock_is_an_error_at_once(path: str, holder: subprocess.Popen[bytes]) -> None:
    with pytest.raises(SetupError, match=rf"pid {holder.pid}, .*\) holds .* another --lock-file"):
        await lock.take_lock(path, wait=False)


async def test_one_that_gives_way_is_waited_for(path: str, holder: subprocess.Popen[bytes]) -> None:
    taking = spawn(lock.take_lock(path, wait=True), name="taking")
    await asyncio.sleep(0)
    assert not taking.done()
    holder.kill()
    os.close(await asyncio.wait_for(taking, 30))


async def test_it_is_not_waited_for_without_end(
    path: str, holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "HANDOVER_S", 0.3)
    with pytest.raises(SetupError, match=f"pid {holder.pid}"):
        await lock.take_lock(path, wait=True)


async def test_no_lock_file_means_no_lock_and_no_contention() -> None:
    assert await lock.take_lock("", wait=False) == -1
    with pytest.raises(SetupError, match="cannot exit on lock file contention"):
        await lock.take_lock("", wait=True)


CONTENTIONS: dict[str, Callable[[str], object]] = {
    "opened": lambda path: os.close(os.open(path, os.O_RDONLY)),
    "removed": os.unlink,
    "removed, with a second name": lambda path: (os.link(path, path + "2"), os.unlink(path)),
    "renamed": lambda path: os.rename(path, path + ".old"),
    "replaced": lambda path: (Path(path + ".new").touch(), os.rename(path + ".new", path)),
}


@pytest.mark.parametrize("contend", CONTENTIONS.values(), ids=CONTENTIONS)
async def test_who_wants_the_file_stops_the_agent_which_holds_it_open(
    path: str, contend: Callable[[str], object]
) -> None:
    held = await lock.take_lock(path, wait=False)
    stop = Stop()
    watching = spawn(lock.yield_on_contention(path, held, stop), name="watching")
    for _ in range(10):
        await asyncio.sleep(0)  # it watches from its first step on
    os.stat(path)
    os.chmod(path, 0o640)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stop.wait(), 0.1)  # neither is contention: `doctor` looks at it
    contend(path)
    await asyncio.wait_for(stop.wait(), 30)
    assert stop.reason == f"another process wants the lock file {path}"
    await cancel(watching)
    os.close(held)


async def test_a_file_that_went_before_it_was_watched_stops_the_agent(path: str) -> None:
    held = await lock.take_lock(path, wait=False)
    os.unlink(path)
    Path(path).touch()
    stop = Stop()
    watching = spawn(lock.yield_on_contention(path, held, stop), name="watching")
    await asyncio.wait_for(stop.wait(), 30)
    assert stop.reason == f"another process wants the lock file {path}"
    await cancel(watching)
    os.close(held)


async def test_a_file_that_cannot_be_watched_stops_the_agent_too(tmp_path: Path) -> None:
    stop = Stop()
    watching = spawn(lock.yield_on_contention(str(tmp_path / "absent"), 0, stop), name="watching")
    await asyncio.wait_for(stop.wait(), 30)
    assert "cannot be watched: No such file" in stop.reason
    await cancel(watching)
