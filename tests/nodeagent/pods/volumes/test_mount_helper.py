"""Refusals of the mount helper, asked as by an agent that somebody else has taken over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodeagent.pods.volumes import kernel_mounts, mount_helper
from nodeagent.pods.volumes.mounts import HelpedMounts
from tests.attacks.test_subpath_escape import swapped
from tests.fakes.mounts import running_helper, shared_directory

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

KERNEL = tuple(map(int, os.uname().release.split(".")[:2]))
SECRET, SUB_PATH = "pods/u/volumes/secret/s", "pods/u/volume-subpaths/c/0"
CONFIG, OUTSIDE = "pods/u/volumes/configmap/c", "../outside"
SHARE, SHARES = "pods/u/volumes/nfs/n", "pods/u/volumes/nfs"
PLACES = (SECRET, SUB_PATH, CONFIG, OUTSIDE, SHARE, f"{SECRET}/below", "pods/u/volumes/empty-dir/e")
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
    (b"x" * 2000, [SECRET], "the request is too long"),
    (b"hugepages 2097152 0", [CONFIG], "volumes of the kind configmap are not in memory"),
    (b"hugepages 2097152 -1", [SECRET], "is no request"),
    (b"nfs rw 127.0.0.1 /e", [SECRET], "volumes of the kind secret are not shares"),
    (b"nfs rw 127.0.0.1 /e", [SUB_PATH], "is no place for that"),
    (b"nfs rw 127.0.0.1 /e", [SHARE, SHARE], "is no request"),
    (b"nfs rw 127.0.0.1,vers=3 /e", [SHARE], "does not appear to be an IPv4 or IPv6 address"),
    (b"nfs rw 127.0.0.1 e", [SHARE], "is no share"),
    (b"nfs rw 127.0.0.1 /\0", [SHARE], "is no share"),
    (b"nfs suid 127.0.0.1 /e", [SHARE], "is no share"),
    (b"nfs rw 127.0.0.1 /" + b"e" * 1024, [SHARE], "is longer than 1024 bytes"),
    (b"unmount n", [SHARES], "no share is mounted on"),
    (b"unmount ../x", [SHARES], "is not the name of a share"),
    (b"unmount ..", [SHARES], "is not the name of a share"),
    (b"unmount s", ["pods/u/volumes/secret"], "is no place for that"),
    ("tmpfs ٣".encode(), [SECRET], "codec can't decode"),
]


def test_a_request_that_is_none_of_its_own_is_refused(root: Path, door: Path) -> None:
    before = kernel_mounts.mounts_below(str(root))
    for request, places, answer in REFUSED:
        opened = [os.open(root / place, os.O_PATH) for place in places]
        try:
            assert answer in ask(door, request, opened), (request[:80], places)
        finally:
            for descriptor in opened:
                os.close(descriptor)
        assert kernel_mounts.mounts_below(str(root)) == before, (request[:80], places)


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


def test_a_place_swapped_for_a_link_does_not_lead_the_mount_elsewhere(
    root: Path, door: Path
) -> None:
    place, outside = (root / SECRET).parent, root.parent / "outside"
    (place / "d").mkdir()
    opened = os.open(place / "d", os.O_PATH)
    seen = Counter[str]()
    with swapped(place, outside):
        for _ in range(400):
            ask(door, b"tmpfs 4096", [opened])
            for mount in kernel_mounts.mounts_below(str(root.parent)):
                if mount.filesystem == "tmpfs":
                    seen["escaped" if mount.path == str(outside) else "kept"] += 1
                    kernel_mounts.unmount(mount.path)
    os.close(opened)
    assert not seen["escaped"] and seen["kept"], seen


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


CONNECT_AS_NOBODY = """
import os, socket, sys
os.chdir(os.path.dirname(sys.argv[1]))
os.setgroups([]); os.setgid(65534); os.setuid(65534)
held = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(15)]
for connection in held:
    connection.connect(os.path.basename(sys.argv[1]))
print("connected", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_silent_strangers_hardly_keep_the_agent_waiting(root: Path, door: Path) -> None:
    door.chmod(0o666)
    door.parent.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-c", CONNECT_AS_NOBODY, door],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as strangers:  # fmt: skip
        assert strangers.stdin and strangers.stdout
        strangers.stdout.readline()
        began_s = time.monotonic()
        HelpedMounts(str(door)).tmpfs(root / SECRET, 4096)
        took_s = time.monotonic() - began_s
        strangers.stdin.close()
    assert took_s < 15 * mount_helper.READ_S / 2


@contextmanager
def agents_cgroup(*above: str) -> Iterator[Path]:
    """Where a helper looks for its peers, below `above` in the unified hierarchy."""
    place = Path("/sys/fs/cgroup")
    top = place if (place / "cgroup.controllers").exists() else place / "unified"
    own = subprocess.run(["cat", "/proc/self/cgroup"], capture_output=True, text=True).stdout
    below = next(line[3:] for line in own.splitlines() if line.startswith("0::"))
    made = top.joinpath(*above, *Path(below).parts[1:-1], "nodeagent.service")
    there = {path for path in (made, *made.parents) if path.exists()}
    made.mkdir(parents=True, exist_ok=True)
    try:
        yield made
    finally:
        for path in (made, *made.parents):
            if path not in there:
                path.rmdir()


ENTER = "import os, sys; open(sys.argv.pop(1), 'w').write(str(os.getpid()));"
ASK_AS_ROOT = ASK_AS_NOBODY.replace("os.setgroups([]); os.setgid(65534); os.setuid(65534)", "")


@pytest.mark.parametrize(
    ("above", "answer"), [((), "done"), (("x\x0c0::",), "is not in the cgroup")]
)
def test_a_cgroup_does_not_pass_for_the_agents_by_the_name_of_another(
    root: Path, tmp_path: Path, above: tuple[str, ...], answer: str
) -> None:
    """Its path looks like two lines, the second of the agent's, if a form feed ends a line."""
    place = (tmp_path / "socket", root / SECRET)
    with (
        agents_cgroup(*above) as cgroup,
        running_helper(root, place[0], unit="nodeagent.service"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", ENTER + ASK_AS_ROOT, cgroup / "cgroup.procs", *place],
            capture_output=True, text=True,
        )  # fmt: skip
    assert answer in done.stdout, done.stderr
    assert bool(kernel_mounts.mounts_on(root / SECRET)) == (answer == "done")


def with_the_number(pid: int, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """A process with the number of one that is gone."""
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        if process.pid == pid:
            return process
        process.kill()
        process.communicate()
    raise AssertionError(f"{pid} was never given again")


@pytest.mark.skipif(KERNEL < (6, 5), reason="older kernels do not tell")
def test_a_peer_that_is_gone_is_not_taken_for_who_has_its_number_now(
    root: Path, tmp_path: Path
) -> None:
    """Such as one of the agent's threads: a stranger waits for one."""
    place = os.open(root / SECRET, os.O_PATH)
    with (
        agents_cgroup() as cgroup,
        running_helper(root, tmp_path / "socket", unit="nodeagent.service") as helper,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
    ):
        helper.send_signal(signal.SIGSTOP)
        stranger = os.fork()
        if not stranger:
            connection.connect(str(tmp_path / "socket"))
            os._exit(0)
        os.waitpid(stranger, 0)
        socket.send_fds(connection, [b"tmpfs 4096"], [place])
        enter = [sys.executable, "-c", f"{ENTER} print('in'); sys.stdin.read()"]
        with_its_number = with_the_number(stranger, [*enter, str(cgroup / "cgroup.procs")])
        deadline_s = time.monotonic() + 30
        while str(stranger) not in (cgroup / "cgroup.procs").read_text().split():
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        helper.send_signal(signal.SIGCONT)
        connection.settimeout(30)
        answer = connection.recv(mount_helper.ANSWER_BYTES)
        with_its_number.communicate()
    os.close(place)
    assert answer != mount_helper.DONE
    assert not kernel_mounts.mounts_on(root / SECRET)


@pytest.mark.slow
def test_a_silent_peer_keeps_nobody_waiting_for_long(root: Path, door: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(door))
        began_s = time.monotonic()
        HelpedMounts(str(door)).tmpfs(root / SECRET, 4096)
        assert time.monotonic() - began_s < mount_helper.READ_S + 10
        silent.settimeout(1)
        assert b"timed out" in silent.recv(mount_helper.ANSWER_BYTES)
