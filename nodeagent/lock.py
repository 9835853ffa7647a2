"""One agent per host: taking the lock file, and giving way to who else opens it.

With `--exit-on-lock-contention` an agent ends in order as soon as somebody opens or removes its
lock file; the one that comes after, started the same way, waits a while for that.
"""

from __future__ import annotations

import asyncio
import logging

from orch.component.process.daemon import SetupError, Stop
from orch.component.process.files import LockHeldError, acquire
from orch.component.process.inotify import TOUCHED, PathWatch
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

GIVES_WAY_WITHIN_S = 60.0  # an ordered stop of the one that holds the lock
_POLL_S = 0.2


async def take_lock(path: str, *, wait: bool) -> int:
    """The descriptor that holds the lock, -1 for the path "", which means none.

    SetupError when another agent holds it, and with `wait`, when it does so for too long.
    """
    if not path:
        if wait:
            raise SetupError(
                "cannot exit on lock file contention: no lock file specified (--lock-file)"
            )
        return -1
    loop = asyncio.get_running_loop()
    until_s = loop.time() + (GIVES_WAY_WITHIN_S if wait else 0.0)
    waiting = OnceLog(log, logging.INFO)
    while True:
        try:
            return acquire(path, holder="node agent")
        except LockHeldError as error:
            if loop.time() >= until_s:
                advice = "stop it, or give this one another --lock-file"
                raise SetupError(f"{error}; {advice}") from None
            waiting.failed("waiting: %s and is to give way", error)
        except OSError as error:
            raise SetupError(
                f"cannot use the lock file {path}: {error.strerror or error}"
            ) from None
        await asyncio.sleep(_POLL_S)


async def give_way(path: str, stop: Stop) -> None:
    """Stop the program when somebody opens or removes the lock file; runs for ever.

    The file must be open already: one's own opening would count.
    """
    touched = asyncio.Event()
    watch = PathWatch(touched.set, mask=TOUCHED)
    try:
        watch.watch(path)
        await touched.wait()
        stop.set(f"another process wants the lock file {path}")
        await asyncio.Event().wait()
    except OSError as error:
        stop.set(f"the lock file {path} cannot be watched: {error.strerror or error}")
        await asyncio.Event().wait()
    finally:
        watch.close()
