"""CRIU as the runtime finds it: in the runtime's own root and PATH, which may not be this shell's.

Blocking, and runs the program that is found there (`--version`, `check`).
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
from pathlib import Path

from nodeagent.doctor import kernel
from nodeagent.doctor.checks import CriuFacts
from nodeagent.runtime.endpoint import socket_path

_TIMEOUT_S = 10.0
_CREDENTIALS = struct.Struct("iii")  # pid, uid, gid
_USUAL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def read_criu(endpoint: str = "") -> CriuFacts:
    """Which CRIU the runtime at an endpoint would call, and what it lacks on this kernel.

    Where the runtime's process cannot be looked into, this process's own PATH counts.
    """
    command = _command(_listener(endpoint) if endpoint else None)
    if not command:
        return CriuFacts()
    version = _first_version(_run([*command, "--version"]))
    if not version:
        return CriuFacts()
    done = _run([*command, "check"])
    if done is None or done.returncode == 0:
        return CriuFacts(version)
    lines = (done.stderr + done.stdout).strip().splitlines()
    return CriuFacts(version, lines[-1].strip() if lines else "criu check fails")


def _listener(endpoint: str) -> int | None:
    """The process that listens on a socket; None when nobody does or it cannot be asked."""
    path = socket_path(endpoint)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_TIMEOUT_S)
            probe.connect(path)
            raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return None
    pid = int(_CREDENTIALS.unpack(raw)[0])
    return pid or None  # 0: of another PID namespace


def _command(pid: int | None) -> list[str]:
    """How to call the CRIU in a process's root and PATH; [] when there is none."""
    root = Path(f"/proc/{pid}/root")
    try:
        own = pid is None or (root.samefile("/") and _mounts(pid) == _mounts("self"))
        environment = b"" if pid is None else Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        own, environment = True, b""
    if own:
        path = shutil.which("criu", path=_path_in(environment) or None)
        return [path] if path else []
    for folder in (_path_in(environment) or _USUAL_PATH).split(os.pathsep):
        if (root / folder.lstrip("/") / "criu").is_file():
            return ["nsenter", f"--target={pid}", "--mount", "--root", "--", f"{folder}/criu"]
    return []


def _mounts(process: int | str) -> str:
    """The mount namespace of a process: the same root may have other things mounted in it."""
    return os.readlink(f"/proc/{process}/ns/mnt")


def _path_in(environment: bytes) -> str:
    for entry in environment.split(b"\0"):
        key, _, value = entry.partition(b"=")
        if key == b"PATH":
            return os.fsdecode(value)
    return ""


def _first_version(done: subprocess.CompletedProcess[str] | None) -> str:
    numbers = (kernel.numbers_in(word) for word in (done.stdout if done else "").split())
    return next((".".join(map(str, found)) for found in numbers if found), "")


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
