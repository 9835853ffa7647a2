"""bash, zsh and fish themselves complete `orchctl`, in a terminal and from a live server."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.apiserver import running
from tests.e2e.harness import ROOT
from tests.orch.ctl.conftest import run_command

pytestmark = pytest.mark.seconds(30)

POD = """
apiVersion: v1
kind: Namespace
metadata: {name: shop-one}
---
apiVersion: v1
kind: Pod
metadata: {name: shown, namespace: shop-one}
spec: {containers: [{name: c, image: "busybox:1"}]}
"""
# What each shell reads at its start: the script, and Ctrl-X to tell what stands on the line.
BASH = 'source @SCRIPT\nbind -x \'"\\C-x": printf %s "$READLINE_LINE" > @LINE\'\n'
ZSH = """
autoload -U compinit && compinit -u -D
source @SCRIPT
tell() { print -rn -- "$BUFFER" > @LINE }
zle -N tell && bindkey '^X' tell
"""
FISH = "source @SCRIPT\nbind \\cx 'commandline > @LINE'\n"
SHELLS = {
    "bash": (BASH, ["bash", "--noprofile", "--rcfile", "@RC", "-i"]),
    "zsh": (ZSH, ["zsh", "-d", "-i"]),
    "fish": (FISH, ["fish", "--no-config", "-i", "-C", "source @RC"]),
}
TELL = "\x18"
KILL_LINE = "\x15"
PATIENCE_S = 60.0


class Terminal:
    """An interactive shell at a terminal of its own, with `orchctl` on its path."""

    def __init__(self, shell: str, folder: Path, kubeconfig: str) -> None:
        self._line = folder / "line"
        self._shell = shell
        script = folder / "script"
        script.write_text(run_command("completion", shell).out)
        text, command = SHELLS[shell]
        rc = folder / ".zshrc"
        rc.write_text(text.replace("@SCRIPT", str(script)).replace("@LINE", str(self._line)))
        self._master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        scripts = str(Path(sys.executable).parent)
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *(word.replace("@RC", str(rc)) for word in command)],
            stdin=slave, stdout=slave, stderr=slave, cwd=folder,
            env={
                "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder),
                "ZDOTDIR": str(folder), "KUBECONFIG": kubeconfig, "TERM": "xterm",
                "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT),
            },
        )  # fmt: skip
        os.close(slave)
        self.shown = ""

    def complete(self, line: str) -> str:
        """What stands on the line after a Tab."""
        self._line.unlink(missing_ok=True)
        os.write(self._master, f"{line}\t{TELL}".encode())
        deadline_s = time.monotonic() + PATIENCE_S
        while not (self._line.exists() and self._line.read_text()):
            assert time.monotonic() < deadline_s, self.shown
            self._read()
        os.write(self._master, KILL_LINE.encode())
        return self._line.read_text().strip()

    def _read(self) -> None:
        if select.select([self._master], [], [], 0.05)[0]:
            self.shown += os.read(self._master, 65536).decode(errors="replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait(timeout=10)
        os.close(self._master)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("apiserver")
    with running(folder):
        path = str(folder / "kubeconfig")
        (folder / "pod.yaml").write_text(POD)
        made = run_command("create", "-f", str(folder / "pod.yaml"), "--kubeconfig", path)
        assert made.code == 0, made.err
        yield path


@pytest.fixture(scope="module", params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@pytest.fixture(scope="module")
def terminal(
    shell: str, kubeconfig: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Terminal]:
    made = Terminal(shell, tmp_path_factory.mktemp(shell), kubeconfig)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("orchctl unc", "orchctl uncordon"),
        ("orchctl get --sort", "orchctl get --sort-by"),
        ("orchctl patch --type mer", "orchctl patch --type merge"),
        ("orchctl describe serviceacc", "orchctl describe serviceaccounts"),
        ("orchctl -n shop-one delete pod/sh", "orchctl -n shop-one delete pod/shown"),
        ("orchctl get pods --namespace=shop", "orchctl get pods --namespace=shop-one"),
    ],
)
def test_a_tab_completes(terminal: Terminal, line: str, completed: str) -> None:
    """Several times: on a busy machine a server may take more than the second it is given."""
    found = ""
    for _ in range(5):
        found = terminal.complete(line)
        if found == completed:
            return
    assert found == completed


def test_a_server_that_is_down_offers_nothing_and_says_nothing(terminal: Terminal) -> None:
    for words in ("get pods -s http://127.0.0.1:1 xyz", "--kubeconfig /proc/nothing get xyz"):
        line = f"orchctl {words}"
        assert terminal.complete(line) == line
    for word in ("error", "Traceback", "refused"):
        assert word not in terminal.shown
