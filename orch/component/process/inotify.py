"""Notification that a file or a directory's contents changed: inotify through the C library.

Reports that something changed, and which names went from a directory. Misses changes by other
machines on a network filesystem and changes behind symbolic links, so users poll now and then as
well.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import struct
from collections.abc import Callable, Iterator

# uapi/linux/inotify.h: modify, attrib, close_write, moved_from, moved_to, create, delete,
# delete_self, move_self
CHANGED = 0x2 | 0x4 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800
OPENED = 0x20
DISPLACED = 0x4 | 0x400 | 0x800  # attrib: of an open file, all that tells that its name has gone
_REMOVED = 0x40 | 0x200
_EVENTS_BYTES = 64 * 1024
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows

_libc = ctypes.CDLL(None, use_errno=True)


class PathWatch:
    """A watched path; `on_change` is called in the loop, once for many changes.

    Create it in that loop, and `close` it. OSError: the kernel gives no inotify instance.
    """

    def __init__(self, on_change: Callable[[], None], *, mask: int = CHANGED) -> None:
        self._mask = mask
        self._on_change = on_change
        self._fd = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK), "inotify")
        self._watched = -1
        self._removed: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._readable)

    def watch(self, path: str) -> None:
        """Watch what is at `path` now, instead of what was there before; may block on the disk.

        OSError: nothing is there, or the limit of watches is reached.
        """
        found = _checked(
            _libc.inotify_add_watch(self._fd, os.fsencode(path), ctypes.c_uint32(self._mask)), path
        )
        if self._watched not in (-1, found):
            _libc.inotify_rm_watch(self._fd, self._watched)  # fails if the kernel removed it
        self._watched = found

    def take_removed(self) -> frozenset[str]:
        """Names that were removed or moved away since the last call, though they may be back."""
        taken, self._removed = frozenset(self._removed), set()
        return taken

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._removed.update(_removed(os.read(self._fd, _EVENTS_BYTES)))
        self._on_change()


def _removed(events: bytes) -> Iterator[str]:
    at = 0
    while at < len(events):
        _, mask, _, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size + length
        if mask & _REMOVED:
            yield os.fsdecode(events[at - length : at].rstrip(b"\0"))


def _checked(result: int, subject: str) -> int:
    if result >= 0:
        return result
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), subject)
