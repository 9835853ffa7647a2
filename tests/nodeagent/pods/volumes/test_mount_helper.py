"""What the mount helper refuses, asked as by an agent that somebody else has taken over."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nodeagent.pods.volumes import kernel_mounts, mount_helper
from nodeagent.pods.volumes.mounts import HelpedMounts
from tests.fakes.mounts import running_helper, shared_directory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

SECRET, SUB_PATH = "pods/u/volumes/secret/s", "pods/u/volume-subpaths/c/0"
CONFIG, OUTSIDE = "pods/u/volumes/configmap/c", "../outside"
PLACES = (SECRET, SUB_PATH, CONFIG, OUTSIDE, f"{SECRET}/below", "pods/u/volumes/empty-dir/e")
# What a test creates lies below a directory of root's: opened before the rights are given up.
ASK_AS_NOBODY = """
import os, socket, sys
door, place = sys.argv[1:]
opened = os.open(place, os.O_PATH)
os.chdir(os.path.dirname(door))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.connect(os.path.basename(door))
    socket.send_fds(connection, [b"tmpfs 4096"], [opened])
    print(connection.recv(1000).decode())
"""


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    with shared_directory(tmp_path / "root") as directory:
        for below in PLACES:
            (directory / below).mkdir(parents=True, exist_ok=True)
        yield directory


@pytest.fixture
def door(root: Path, tmp_path: Path) -> Iterator[Path]:
    with running_helper(root, tmp_path / "socket"):
        yield tmp_path / "socket"


def ask(door: Path, request: bytes, descriptors: Sequence[int]) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(30)
        connection.connect(str(door))
        socket.send_fds(connection, [request], descriptors)
        return connection.recv(mount_helper.ANSWER_BYTES).decode()


REFUSED = [
    (b"tmpfs 4096", [OUTSIDE], "is not in the subpath of"),
    (b"tmpfs 4096", ["pods/u"], "pods/u is no place for that"),
    (b"tmpfs 4096", [f"{SECRET}/below"], "is no place for that"),
    (b"tmpfs 4096", [SUB_PATH], "is no place for that"),
    (b"tmpfs 4096", [CONFIG], "volumes of the kind configmap are not in memory"),
    (b"tmpfs -1", [SECRET], "is no request"),
    (b"tmpfs 1,mode=4777", [SECRET], "is no request"),
    (b"tmpfs", [SECRET], "is no request"),
    (b"tmpfs 4096", [], "is no request"),
    (b"bind", [SUB_PATH], "is no request"),
    (b"bind", [SECRET, OUTSIDE], "is no place for that"),
    (b"bind", [OUTSIDE, SECRET], "is not in the subpath of"),
    (b"bind", [SUB_PATH, SECRET, OUTSIDE], "the request is too long"),
    (b"unmount", [SECRET], "nothing is mounted on"),
    (b"unmount", ["."], "is no place for that"),
    (b"remount", [SECRET], "is no request"),
    (b"", [SECRET], "is no request"),
    (b"x" * 100, [SECRET], "the request is too long"),
    ("tmpfs ٣".encode(), [SECRET], "codec can't decode"),
]


@pytest.mark.parametrize(("request_", "places", "answer"), REFUSED)
def test_a_request_that_is_none_of_its_own_is_refused(
    root: Path, door: Path, request_: bytes, places: Sequence[str], answer: str
) -> None:
    before = kernel_mounts.mounts_below(str(root))
    opened = [os.open(root / place, os.O_PATH) for place in places]
    try:
        assert answer in ask(door, request_, opened)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert kernel_mounts.mounts_below(str(root)) == before


def test_a_source_must_have_a_path_that_leads_to_it(root: Path, door: Path) -> None:
    place = os.open(root / SUB_PATH, os.O_PATH)
    pipe, end = os.pipe()
    (root / "pods/swapped").mkdir()
    swapped = os.open(root / "pods/swapped", os.O_PATH)
    (root / "pods/swapped").rename(root / "pods/moved")
    assert "has no path" in ask(door, b"bind", [place, pipe])
    assert ask(door, b"bind", [place, swapped]) == "done", "it is found where it is now"
    HelpedMounts(str(door)).unmount(root / SUB_PATH)
    (root / "pods/moved").rmdir()
    (root / "pods/moved").mkdir()
    assert "No such file" in ask(door, b"bind", [place, swapped])
    for descriptor in (place, pipe, end, swapped):
        os.close(descriptor)


def test_what_somebody_else_mounted_stays(root: Path, door: Path) -> None:
    kernel_mounts.bind(str(root / OUTSIDE), str(root / SECRET))
    mounted = os.open(root / SECRET, os.O_PATH)
    assert "mounted on it by somebody else" in ask(door, b"unmount", [mounted])
    os.close(mounted)
    assert kernel_mounts.mounts_on(root / SECRET)


def test_only_the_agents_user_is_served(root: Path, door: Path) -> None:
    door.chmod(0o666)
    door.parent.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", ASK_AS_NOBODY, door, root / SECRET], capture_output=True, text=True
    )
    assert "is of user 65534 and group 65534" in done.stdout, done.stderr
    assert not kernel_mounts.mounts_on(root / SECRET)


def test_only_the_agents_unit_is_served(root: Path, tmp_path: Path) -> None:
    with running_helper(root, tmp_path / "socket", unit="nodeagent.service"):
        place = os.open(root / SECRET, os.O_PATH)
        answer = ask(tmp_path / "socket", b"tmpfs 4096", [place])
        os.close(place)
    assert "is not in the cgroup" in answer and answer.endswith("/nodeagent.service")


def test_a_silent_peer_keeps_nobody_waiting_for_long(root: Path, door: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(door))
        began_s = time.monotonic()
        HelpedMounts(str(door)).tmpfs(root / SECRET, 4096)
        assert time.monotonic() - began_s < mount_helper.READ_S + 10
        silent.settimeout(1)
        assert b"timed out" in silent.recv(mount_helper.ANSWER_BYTES)
