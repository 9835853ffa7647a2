"""This machine and its processes, against the machine itself and processes that are started."""

from __future__ import annotations

import getpass
import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orch.component.process import system

NOBODY = 2**22 + 1  # above the largest pid that the kernel gives


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits, with a variable of its own."""
    environment = {**os.environ, "MARK": "yes"}
    with subprocess.Popen(["sleep", "60"], env=environment) as process:
        while not Path(f"/proc/{process.pid}/environ").read_bytes():
            time.sleep(0.001)  # it has begun, and the kernel lays them out
        yield process
        process.kill()


def test_the_hardware_is_what_the_kernel_shows() -> None:
    found = system.read_hardware()
    meminfo = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    assert found.memory_bytes == int(meminfo["MemTotal"].split()[0]) * 1024
    assert found.swap_bytes == int(meminfo["SwapTotal"].split()[0]) * 1024
    assert found.cpu_count == os.cpu_count()
    assert 0 <= found.physical_cores <= found.cpu_count
    boot = next(x for x in Path("/proc/stat").read_text().splitlines() if x.startswith("btime "))
    assert found.boot_time_ns == int(boot.split()[1]) * 10**9


def test_a_process_began_before_now_and_after_its_parent(child: subprocess.Popen[bytes]) -> None:
    tick_s = 0.05
    began_s = system.process_start_s(child.pid)
    assert system.process_start_s() <= began_s + tick_s
    assert began_s <= time.time() + tick_s


def test_a_process_that_is_gone_or_hidden_began_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert abs(system.process_start_s(NOBODY) - time.time()) < 5
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert abs(system.process_start_s(os.getpid()) - time.time()) < 5
    assert system.describe_process(os.getpid()) == f"pid {os.getpid()}"


def test_where_the_times_of_the_kernel_are_hidden_a_process_began_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ProcSubset=pid leaves /proc/<pid> and little else."""
    (tmp_path / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    assert abs(system.process_start_s(os.getpid()) - time.time()) < 5


def test_a_process_is_described_by_program_owner_and_start(
    child: subprocess.Popen[bytes],
) -> None:
    text = system.describe_process(child.pid)
    assert text.startswith(f"pid {child.pid}, sleep of {getpass.getuser()} since 2")
    assert text.endswith("Z")
    assert system.describe_process(NOBODY) == f"pid {NOBODY}"


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_who_listens_on_a_port_is_known(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        assert system.listening_process(address, port) == os.getpid()
        assert system.listening_process("0.0.0.0", port) == os.getpid()
        assert system.listening_process("127.0.0.9", port) is None
    assert system.listening_process(address, port) is None


def test_the_process_that_listens_on_a_unix_socket_is_found_without_waiting(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    assert system.server_pid(path) == 0
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        assert system.server_pid(path) == 0
        listening.listen(0)
        assert system.server_pid(path) == os.getpid()
        assert system.server_pid(path) == 0  # nobody was let in, and the queue is full


def test_the_environment_is_that_of_the_start(child: subprocess.Popen[bytes]) -> None:
    assert system.environment_of(child.pid)["MARK"] == "yes"
    assert system.environment_of(NOBODY) == {}


def test_every_process_is_listed_without_its_arguments(child: subprocess.Popen[bytes]) -> None:
    found = {one["pid"]: one for one in system.processes()}
    assert found[child.pid]["name"] == "sleep"
    own = found[os.getpid()]
    assert own["username"] == getpass.getuser()
    assert own["memory_percent"] > 0 < own["num_threads"]
    assert "60" not in found[child.pid].values()


def test_a_process_s_name_is_the_kernel_s_whatever_its_arguments(tmp_path: Path) -> None:
    """psutil lengthens a name of 15 bytes by the first argument, which the process chooses."""
    program = tmp_path / "a-long-name-of-a-program"
    shutil.copy("/bin/sleep", program)
    argument = f"{program.name} --password=x\x1b]0;owned\x07" + "y" * 100_000
    with subprocess.Popen([argument, "60"], executable=program) as process:
        try:
            [found] = [one for one in system.processes() if one["pid"] == process.pid]
            assert found["name"] == "a-long-name-of-"
            assert f", {found['name']} of " in system.describe_process(process.pid)
        finally:
            process.kill()


def test_hidden_facts_about_the_hardware_are_0(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    (tmp_path / "stat").write_text("cpu 1 2 3\n")
    found = system.read_hardware()
    assert (found.memory_bytes, found.swap_bytes, found.boot_time_ns) == (0, 0, 0)
    assert found.cpu_count == os.cpu_count()


def test_the_limit_of_open_files_is_raised_as_far_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [1024, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(
        resource, "setrlimit", lambda _, wanted: limits.__setitem__(slice(None), wanted)
    )
    assert system.raise_open_files(512) == 1024
    assert system.raise_open_files(2048) == 2048
    assert system.raise_open_files(10_000) == 4096
    assert limits == [4096, 4096]


def test_a_file_that_others_can_read(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    assert not system.is_open_to_others(str(path), system.READ)
    path.chmod(0o640)
    assert system.is_open_to_others(str(path), system.READ)
    assert not system.is_open_to_others(str(tmp_path / "absent"), system.READ)
    path.chmod(0o620)
    assert not system.is_open_to_others(str(path), system.READ)
    assert system.is_open_to_others(str(path), system.WRITE)
