"""Asks the C library to give memory back: large blocks at once, one heap for all threads.

By default every thread gets a heap of its own, and the size from which blocks are given back grows
with the largest ever freed. A daemon that renders megabytes in worker threads then keeps tens of
them for good. Costs a page fault per 4 kB of a large block.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of the GNU C library
LARGE_BYTES = 256 * 1024


def give_memory_back() -> bool:
    """Before any thread is started; False where the C library offers no such settings."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    settings = (
        (_M_ARENA_MAX, 1),
        (_M_MMAP_THRESHOLD, LARGE_BYTES),
        (_M_TRIM_THRESHOLD, LARGE_BYTES),
    )
    return bool(min(mallopt(name, value) for name, value in settings))
