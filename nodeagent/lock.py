"""One agent per host: acquires the lock file, and hands it over on contention.

With `--exit-on-lock-contention` an agent shuts down as soon as another process opens, removes
or replaces its lock file; its successor, started the same way, waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os

from orch.component.process.daemon import SetupError, Stop
from orch.component.process.files import LockHeldError, acquire
from orch.component.process.inotify import DISPLACED, OPENED, PathWatch
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

HANDOVER_S = 60.0  # for the orderly shutdown of the holder
_POLL_S = 0.2


async def take_lock(path: str, *, wait: bool) -> int:
    """The descriptor that holds the lock, -1 for the path "" (no lock).

    SetupError when another agent holds it, with `wait` only after the time for the handover.
    """
    if not path:
        if wait:
            raise SetupError(
                "cannot exit on lock file contention: no lock file specified (--lock-file)"
            )
        return -1
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + (HANDOVER_S if wait else 0.0)
    waiting = OnceLog(log, logging.INFO)
    while True:
        try:
            return acquire(path, holder="node agent")
        except LockHeldError as error:
            if loop.time() >= deadline_s:
                advice = "stop it, or give this one another --lock-file"
                raise SetupError(f"{error}; {advice}") from None
            waiting.failed("waiting for its shutdown: %s", error)
        except OSError as error:
            raise SetupError(
                f"cannot use the lock file {path}: {error.strerror or error}; "
                "start the agent as root, or give it another --lock-file"
            ) from None
        await asyncio.sleep(_POLL_S)


async def yield_on_contention(path: str, held: int, stop: Stop) -> None:
    """Stop the program when another process opens, removes or replaces the lock file; runs forever.

    `held` is the descriptor of the lock. Take it first: this process's own opening would count.
    """
    try:
        await _contended(path, held)
        stop.set(f"another process wants the lock file {path}")
    except OSError as error:
        stop.set(f"the lock file {path} cannot be watched: {error.strerror or error}")
    await asyncio.Event().wait()


async def _contended(path: str, held: int) -> None:
    opened, noticed = asyncio.Event(), asyncio.Event()

    def open_noticed() -> None:
        opened.set()
        noticed.set()

    with (
        contextlib.closing(PathWatch(open_noticed, mask=OPENED)) as openings,
        contextlib.closing(PathWatch(noticed.set, mask=DISPLACED)) as removals,
    ):
        openings.watch(path)
        removals.watch(path)
        while not opened.is_set() and await asyncio.to_thread(_leads_to, path, held):
            await noticed.wait()
            noticed.clear()


def _leads_to(path: str, held: int) -> bool:
    """Whether the path still names the open file: a file that is held open is never deleted."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(held))
    except FileNotFoundError:
        return False
