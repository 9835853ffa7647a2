"""Finds CRIU as the runtime does: in the runtime's root and PATH, which may differ from ours.

Blocking; runs `criu --version` and `criu check`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nodeagent.doctor import kernel
from nodeagent.doctor.checks import CriuFacts
from nodeagent.runtime.endpoint import socket_path
from orch.component.process import system
from orch.component.process.system import server_pid

_TIMEOUT_S = 10.0
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def read_criu(endpoint: str = "") -> CriuFacts:
    """The CRIU that the runtime at an endpoint would run, and what this kernel lacks for it.

    If the runtime's process cannot be inspected, this process's PATH is used.
    """
    pid = server_pid(socket_path(endpoint)) if endpoint else 0
    command = _command(pid or None)
    if not command:
        return CriuFacts()
    version = version_of(command)
    if not version:
        return CriuFacts()
    done = _run([*command, "check"])
    if done is None or done.returncode == 0:
        return CriuFacts(version)
    lines = (done.stderr + done.stdout).strip().splitlines()
    return CriuFacts(version, lines[-1].strip() if lines else "criu check fails")


def _command(pid: int | None) -> list[str]:
    """The command for CRIU in a process's root and PATH; [] when there is none."""
    root = Path(f"/proc/{pid}/root")
    try:
        own = pid is None or (root.samefile("/") and _mounts(pid) == _mounts("self"))
    except OSError:
        own, pid = True, None
    searched = "" if pid is None else system.environment_of(pid).get("PATH", "")
    if own:
        path = shutil.which("criu", path=searched or None)
        return [path] if path else []
    for folder in (searched or _USUAL_PATH).split(os.pathsep):
        if (root / folder.lstrip("/") / "criu").is_file():
            return ["nsenter", f"--target={pid}", "--mount", "--root", "--", f"{folder}/criu"]
    return []


def _mounts(process: int | str) -> str:
    """The mount namespace: the same root may have other mounts in it."""
    return os.readlink(f"/proc/{process}/ns/mnt")


def version_of(command: Sequence[str]) -> str:
    """The first version number in the output of `--version`; "" without the tool."""
    done = _run([*command, "--version"])
    numbers = (kernel.numbers_in(word) for word in (done.stdout if done else "").split())
    return next((".".join(map(str, found)) for found in numbers if found), "")


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
