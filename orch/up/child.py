"""A child process of the local cluster: started in its own session, watched, stopped.

So Ctrl-C reaches only orch-up, which stops the others in order; if orch-up dies, the kernel sends
its children SIGTERM.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_TAIL_BYTES = 16 * 1024  # of a log that grows for as long as its program runs
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


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
