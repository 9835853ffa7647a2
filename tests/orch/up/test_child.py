"""A child process: apart from the terminal, ended by its own id, never outliving its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from orch.component.process import loops
from orch.component.process.daemon import SetupError
from orch.up import child as under_test
from orch.up.child import Child, wait_for_earlier
from tests.fakes.programs import OBEDIENT, PATIENCE_S, STUBBORN, gone, shell, until

Start = Callable[[str], Awaitable[Child]]


@pytest_asyncio.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """A function that starts a shell script as a child."""
    children: list[Child] = []

    async def start(script: str) -> Child:
        children.append(await Child.start("program", shell(script), tmp_path / "program.log"))
        return children[-1]

    yield start
    for child in children:
        await child.stop(grace_s=0)


async def up(child: Child) -> None:
    await until(lambda: "up" in child.last_lines())


async def test_it_runs_in_a_session_of_its_own_and_reads_nothing(start: Start) -> None:
    child = await start(OBEDIENT.format(""))
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    assert os.readlink(f"/proc/{child.pid}/fd/0") == "/dev/null"
    assert child.exit_code is None


async def test_a_child_that_obeys_ends_with_its_own_exit_code(start: Start) -> None:
    child = await start(OBEDIENT.format("echo bye;"))
    await up(child)
    await child.stop(grace_s=PATIENCE_S)
    assert child.exit_code == 0
    assert child.last_lines(1) == "  bye"
    await child.stop(grace_s=PATIENCE_S)  # again: nothing happens


async def test_a_run_waits_for_the_daemons_of_a_killed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    run_dir, program = tmp_path / "run", tmp_path / "nodeagent"
    await wait_for_earlier(run_dir)
    program.write_text("#!/bin/sh\n" + OBEDIENT.format(""))
    program.chmod(0o755)
    others = f"--root-dir={tmp_path}/other/nodeagent", f"--root-dir={run_dir}/nodeagent"
    running = [
        await Child.start("agent", (str(program), flag), tmp_path / "log") for flag in others
    ]
    for child in running:
        await up(child)
    waiting = loops.spawn(wait_for_earlier(run_dir), name="waiting")
    await until(lambda: caplog.messages)
    await running[1].stop(grace_s=PATIENCE_S)
    await waiting
    assert f"pid {running[1].pid}" in caplog.text and f"pid {running[0].pid}" not in caplog.text
    monkeypatch.setattr(under_test, "EARLIER_S", 0.0)
    with pytest.raises(SetupError, match=f"do not end: pid {running[0].pid}"):
        await wait_for_earlier(tmp_path / "other")
    await running[0].stop(grace_s=PATIENCE_S)


async def test_a_child_that_does_not_obey_is_killed(start: Start) -> None:
    child = await start(STUBBORN)
    await up(child)
    await child.stop(grace_s=0.05)
    assert child.exit_code == -signal.SIGKILL


async def test_a_child_that_ends_by_itself_is_waited_for(start: Start) -> None:
    child = await start("exit 7")
    assert await child.wait() == 7
    assert child.exit_code == 7


async def test_the_end_of_its_log_shows_why_it_stopped(start: Start) -> None:
    child = await start("for n in 1 2 3 4 5 6; do echo line $n; done; echo error >&2")
    await child.wait()
    assert child.last_lines(2) == "  line 6\n  error"
    assert child.last_lines().splitlines()[0] == "  line 3"  # five by default


async def test_a_log_that_is_no_text_can_be_shown(start: Start) -> None:
    child = await start(r"printf 'a\377b\n'")
    await child.wait()
    assert child.last_lines() == "  a\N{REPLACEMENT CHARACTER}b"


async def test_of_a_long_log_only_the_end_is_read(start: Start) -> None:
    child = await start("exit 0")
    await child.wait()
    with child.log_file.open("wb") as log:
        log.truncate(2**36)  # takes no space, but nobody could hold it
        log.seek(0, os.SEEK_END)
        log.write(b"\nthe end\n")
    assert child.last_lines(1) == "  the end"


async def test_a_second_start_adds_to_the_log(start: Start) -> None:
    for word in ("first", "second"):
        child = await start(f"echo {word}")
        await child.wait()
    assert child.last_lines() == "  first\n  second"


async def test_a_program_that_is_not_there_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="/absent/program"):
        await Child.start("program", ("/absent/program",), tmp_path / "program.log")


PARENT = """
import asyncio, pathlib, sys
from orch.up.child import Child

async def main():
    child = await Child.start("program", ("/bin/sh", "-c", sys.argv[1]), pathlib.Path(sys.argv[2]))
    print(child.pid, flush=True)
    await child.wait()

asyncio.run(main())
"""


async def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "program.log"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, OBEDIENT.format("echo told to end;"), str(log)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert parent.stdout
    with parent.stdout:
        pid = int(parent.stdout.readline())
    await until(lambda: "up" in log.read_text())
    parent.kill()
    parent.wait()
    await until(lambda: gone(pid))
    assert log.read_text().splitlines()[-1] == "told to end"
