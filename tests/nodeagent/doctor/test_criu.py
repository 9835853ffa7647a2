"""CRIU is looked for where the runtime would look for it."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.doctor.checks import CriuFacts
from nodeagent.doctor.criu import read_criu
from tests.conftest_runtime import RealRuntime
from tests.fakes.programs import make_tool

LISTEN = """
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print("listening", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[str]:
    """The endpoint of a process that has another PATH than this one."""
    other = tmp_path / "other"
    other.mkdir()
    make_tool(other, "criu", "echo Version: 4.9")
    path = tmp_path / "cri.sock"
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PATH": str(other)},
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"listening\n"
        yield f"unix://{path}"
        process.stdin.close()


CRIU = [
    ("echo 'Version: 4.2.1'", CriuFacts("4.2.1")),
    ('[ "$1" = check ] && { echo "Error: no uffd" >&2; exit 1; }; echo Version: 4.2.1',
     CriuFacts("4.2.1", "Error: no uffd")),
    ('[ "$1" = check ] && exit 1; echo Version: 4.2.1', CriuFacts("4.2.1", "criu check fails")),
    ("exit 127", CriuFacts()),
]  # fmt: skip


@pytest.mark.parametrize(("script", "facts"), CRIU)
def test_criu_check_is_run(tools: Path, script: str, facts: CriuFacts) -> None:
    make_tool(tools, "criu", script)
    assert read_criu() == facts


def test_without_the_program_there_is_no_version(tools: Path) -> None:
    assert read_criu() == CriuFacts()


def test_the_runtimes_own_path_counts(runtime: str, tools: Path) -> None:
    assert read_criu() == CriuFacts()
    assert read_criu(runtime) == CriuFacts("4.9")


def test_without_a_listening_runtime_our_own_path_is_used(tmp_path: Path, tools: Path) -> None:
    make_tool(tools, "criu", "echo Version: 4.2.1")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        assert read_criu(f"unix://{tmp_path}/s") == CriuFacts("4.2.1")


@pytest.mark.real
def test_the_criu_of_a_real_runtime_is_found_in_its_own_root(real_runtime: RealRuntime) -> None:
    found = read_criu(real_runtime.endpoint)
    assert found.version
    assert found.problem == ""
