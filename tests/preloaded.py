"""Programs started as copies of a process that has imported them: a start takes a second less.

For tests of what a program does, not of its first lines or its memory: those start it anew. A copy
has its own arguments, directory, environment and standard streams, and begins in `main`.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
_REQUEST_BYTES = 1 << 20


class Copy:
    """A running copy, as `subprocess.Popen` shows a process."""

    def __init__(self, pid: int, keeper: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._keeper = keeper

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal; subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._keeper.settimeout(timeout)
            try:
                code = self._keeper.recv(64)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(f"the copy {self.pid}", timeout or 0) from None
            self.returncode = int(code)
            self._keeper.close()
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    module: str,
    *arguments: str,
    stdout: IO[Any],
    stderr: IO[Any],
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    memory_bytes: int | None = None,
) -> Copy:
    """A copy of the program whose `main` is in the module; `memory_bytes` bounds its addresses."""
    request = {
        "arguments": arguments, "cwd": str(cwd), "memory_bytes": memory_bytes,
        "env": dict(os.environ if env is None else env),
    }  # fmt: skip
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, Path(os.devnull).open("rb") as nothing:
        descriptors = [theirs.fileno(), *(one.fileno() for one in (nothing, stdout, stderr))]
        socket.send_fds(_loaded(module), [json.dumps(request).encode()], descriptors)
    return Copy(int(ours.recv(64)), ours)


def run(
    module: str, *arguments: str, timeout_s: float = 60.0, memory_bytes: int | None = None
) -> subprocess.CompletedProcess[str]:
    """What a copy printed, and its exit code; subprocess.TimeoutExpired."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        copy = start(module, *arguments, stdout=out, stderr=errors, memory_bytes=memory_bytes)
        try:
            code = copy.wait(timeout_s)
        finally:
            copy.kill()
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), errors.read())


@cache
def _loaded(module: str) -> socket.socket:
    """The door of the process that has imported the module; it ends when this one has gone."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _REQUEST_BYTES)
    with theirs:
        command = [sys.executable, "-m", "tests.preloaded", module, str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
    process.returncode = 0  # nobody waits for it
    atexit.register(ours.close)
    return ours


def _serve(module: str, door: socket.socket) -> int:
    """Fork for each request; in the copy, return what the program does."""
    main = importlib.import_module(module).main
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers just end
    while True:
        text, descriptors, *_ = socket.recv_fds(door, _REQUEST_BYTES, 4)
        if not text:
            os._exit(0)
        if os.fork() == 0:
            door.close()
            _become(json.loads(text), module, *descriptors)
            return int(main() or 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _become(request: dict[str, Any], module: str, answers: int, *streams: int) -> None:
    """Fork again: here the copy goes on, and its parent tells its number and its end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        with socket.socket(fileno=answers) as keeper:
            for descriptor in (*streams, 0, 1, 2):
                os.close(descriptor)
            keeper.send(str(pid).encode())
            _, status = os.waitpid(pid, 0)
            with suppress(BrokenPipeError):
                keeper.send(str(os.waitstatus_to_exitcode(status)).encode())
            os._exit(0)
    os.close(answers)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    time.tzset()
    sys.argv = [module, *request["arguments"]]
    if request["memory_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"], request["memory_bytes"]))


if __name__ == "__main__":
    sys.exit(_serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2]))))
