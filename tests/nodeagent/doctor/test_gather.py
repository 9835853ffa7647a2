"""Facts from fake trees, and from this machine where only a real one can tell."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from nodeagent.doctor import gather
from orch.component.process import files as process_files
from orch.component.process import system
from tests.fakes.programs import make_tool


def tree(root: Path, **files: str) -> str:
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return str(root)


def test_the_kernel_from_its_files_and_the_nft_tool(tmp_path: Path, tools: Path) -> None:
    make_tool(tools, "nft", "echo 'nftables v1.0.6 (Lester Gooch #5)'")
    root = tree(
        tmp_path / "proc",
        sys__kernel__osrelease="5.10.0\n",
        sys__net__ipv4__tcp_rmem="1 2 3\n",
        pressure__cpu="some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    )
    facts = gather.read_kernel(root)
    assert facts.release == "5.10.0"
    assert facts.sysctls == {"net.ipv4.tcp_rmem"}
    assert facts.nft == "1.0.6"
    assert facts.psi == {"cpu": "supported", "memory": "absent", "io": "absent"}


def test_an_empty_host_gives_empty_facts(tmp_path: Path, tools: Path) -> None:
    root = str(tmp_path / "nothing")
    assert gather.read_kernel(root).release == ""
    assert gather.read_capabilities(root) is None
    assert gather.has_seccomp(root) is False
    assert gather.read_controllers(root) == frozenset()
    assert gather.read_descriptors(root)[1:] == (0, 0)
    assert gather.bad_profiles(root) == ()


def test_capabilities_and_seccomp_from_the_status(tmp_path: Path) -> None:
    root = tree(tmp_path, self__status="Name:\tx\nCapEff:\t0000000000200004\nSeccomp:\t0\n")
    assert gather.read_capabilities(root) == 1 << 21 | 1 << 2
    assert gather.has_seccomp(root)


def test_bad_profiles_are_named(tmp_path: Path) -> None:
    tree(
        tmp_path,
        **{
            "good.json": '{"defaultAction": "SCMP_ACT_ALLOW"}',
            "sub__bad.json": "{",
            "empty.json": "{}",
            "deep.json": "[" * 100_000,
            "ignored.txt": "{",
        },
    )
    found = gather.bad_profiles(str(tmp_path))
    assert [text.split(": ")[0].rsplit("/", 1)[1] for text in found] == [
        "deep.json",
        "empty.json",
        "bad.json",
    ]
    assert "defaultAction is missing" in found[1]


def test_the_disk_of_a_path_that_is_not_there_yet(tmp_path: Path) -> None:
    facts = gather.read_disk(str(tmp_path / "a" / "b"))
    assert facts is not None
    assert 0 <= facts.available_percent <= 100
    assert 0 <= facts.inodes_free_percent <= 100


HOLD = """
import sys
from orch.component.process import files
files.acquire(sys.argv[1], holder="x")
print("held", flush=True)
sys.stdin.read()
"""


def test_the_holder_of_a_lock_is_known_without_touching_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.lock")
    assert gather.read_lock(path) == (None, "")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    with holder:
        assert holder.stdout is not None and holder.stdin is not None
        assert holder.stdout.readline() == b"held\n"
        assert gather.read_lock(path) == (holder.pid, "")
        holder.stdin.close()
    assert gather.read_lock(path) == (None, "")
    os.close(process_files.acquire(path, holder="x"))


def test_a_lock_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    assert "is not writable" in gather.read_lock(str(tmp_path / "no" / "x.lock"))[1]


def test_a_port_in_use_is_distinguished_from_a_free_one(free_port: Callable[[], int]) -> None:
    assert gather.read_port("x", "127.0.0.1", free_port()).error == ""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = gather.read_port("x", "127.0.0.1", server.getsockname()[1])
    assert taken.error == "Address already in use"
    assert taken.holder == system.describe_process(os.getpid())
    assert gather.read_port("x", "not an address", 1).error
    assert gather.read_port("x", "127.0.0.1", 99999).error
