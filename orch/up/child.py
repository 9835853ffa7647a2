"""A child process of the local cluster: started in its own session, watched, stopped.

So Ctrl-C reaches only orch-up, which stops the others in order; if orch-up dies, the kernel sends
its children SIGTERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from orch.component.process import system
from orch.component.process.daemon import SetupError

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_TAIL_BYTES = 16 * 1024  # of a log that grows for as long as its program runs
EARLIER_S = 90.0  # the agent alone takes 30 s to remove pods that do not end
_DAEMONS = (b"orch-apiserver", b"orch-controller-manager", b"nodeagent")
_LIBC = ctypes.CDLL(None, use_errno=True)


class Child:
    """A started program; `log_file` holds everything it prints."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log_file: Path) -> None:
        self.name = name
        self.log_file = log_file
        self._process = process

    @classmethod
    async def start(cls, name: str, command: Sequence[str], log_file: Path) -> Child:
        with log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        return cls(name, process, log_file)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative after a signal."""
        return self._process.returncode

    async def wait(self) -> int:
        return await self._process.wait()

    async def stop(self, *, grace_s: float) -> None:
        """SIGTERM, and SIGKILL when it has not ended within the grace period."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def last_lines(self, count: int = 5) -> str:
        """The end of its log, for an error message."""
        with self.log_file.open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-count:])


async def wait_for_earlier(run_dir: Path) -> None:
    """Wait until the daemons of a run that was killed have ended; SetupError when they do not.

    They were told to stop when it died, and the agent takes a while to remove its pods.
    """
    deadline_s, said = asyncio.get_running_loop().time() + EARLIER_S, False
    while pids := await asyncio.to_thread(_daemons_of, run_dir):
        shown = ", ".join(map(system.describe_process, pids))
        if asyncio.get_running_loop().time() > deadline_s:
            raise SetupError(f"daemons of an earlier run in {run_dir} do not end: {shown}")
        if not said:
            log.info("waiting for daemons of an earlier run to end: %s", shown)
        said = True
        await asyncio.sleep(0.2)


def _daemons_of(run_dir: Path) -> list[int]:
    """The processes with a flag whose value lies in the directory, but this one."""
    within = b"=%s/" % os.fsencode(run_dir)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has just ended, or is another user's
                words = (entry / "cmdline").read_bytes().split(b"\0")
                daemon = any(os.path.basename(word) in _DAEMONS for word in words[:2])
                if daemon and any(within in word for word in words):
                    found.append(int(entry.name))
    return sorted(found)


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
