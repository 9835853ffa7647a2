"""The lock against concurrent runs of the tool."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from .progress import say

MACHINE = Path("/run")  # stands for what instances share: mount points, tables of the firewall


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the lock on a directory; it leaves no file and ends with the process at the latest."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that works in {directory}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
