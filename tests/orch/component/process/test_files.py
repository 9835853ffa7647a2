"""One holder per lock file, named to the one that comes second."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orch.component.process.files import LockHeldError, acquire

HOLDER = """
import sys
from orch.component.process.files import acquire
acquire(sys.argv[1], holder="node agent")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        who = rf"another node agent \(pid {holder.pid}, python.* since .*\)"
        with pytest.raises(LockHeldError, match=who):
            acquire(path, holder="node agent")
        holder.kill()
        holder.wait()
        os.close(acquire(path, holder="node agent"))  # a dead holder leaves nothing behind


def test_a_full_disk_keeps_nobody_from_the_lock() -> None:
    os.close(acquire("/dev/full", holder="node agent"))  # takes no byte of the holder's name


def test_a_symbolic_link_in_place_of_the_lock_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("precious")
    (tmp_path / "agent.lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        acquire(str(tmp_path / "agent.lock"), holder="node agent")
    assert (tmp_path / "target").read_text() == "precious"
