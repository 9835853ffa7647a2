"""Where the runtime itself runs, found by who serves its socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.stats.runtime import RuntimeCgroup
from nodeagent.stats.samples import SystemPart
from orch.component.process import system

CGROUP = "/system.slice/containerd.service"


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[str]:
    """The path of a socket that this process serves."""
    path = str(tmp_path / "runtime.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        yield path


@pytest.fixture
def proc(tmp_path: Path) -> str:
    """A /proc in which this process runs in a cgroup of its own."""
    process = tmp_path / "proc" / str(os.getpid())
    process.mkdir(parents=True)
    (process / "cgroup").write_text(f"0::{CGROUP}\n")
    return str(process.parent)


async def test_the_runtime_s_cgroup_is_that_of_the_listening_process(
    runtime: str, proc: str
) -> None:
    part = RuntimeCgroup(runtime, None, proc)
    assert part.latest == ()
    await part.step()
    assert part.latest == (SystemPart("runtime", CGROUP, int(system.process_start_s() * 1e9)),)


async def test_a_cgroup_shared_with_the_agent_or_with_everything_is_not_reported(
    runtime: str, proc: str
) -> None:
    shared = RuntimeCgroup(runtime, CGROUP, proc)
    await shared.step()
    assert shared.latest == ()
    Path(proc, str(os.getpid()), "cgroup").write_text("0::/\n")
    of_all = RuntimeCgroup(runtime, None, proc)
    await of_all.step()
    assert of_all.latest == ()


async def test_a_silent_runtime_keeps_its_last_cgroup(runtime: str, proc: str) -> None:
    part = RuntimeCgroup(runtime, None, proc)
    await part.step()
    found = part.latest
    os.unlink(runtime)
    await part.step()
    assert part.latest == found != ()
