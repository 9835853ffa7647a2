"""Work for a thread that waits for its turn, while whoever asked for it is cancelled."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any


async def cancel_in_thread(caller: asyncio.Task[Any]) -> None:
    """Cancel a task that has given work to a thread; it must wait until that is done."""
    loop, released = asyncio.get_running_loop(), threading.Event()
    with ThreadPoolExecutor(max_workers=1) as single:
        loop.set_default_executor(single)
        single.submit(released.wait, 30)
        await asyncio.sleep(0.01)
        caller.cancel()
        ended, _ = await asyncio.wait((caller,), timeout=0.05)
        released.set()
        await asyncio.wait((caller,))
    assert not ended, "the caller left its thread at work"
    assert caller.cancelled()
