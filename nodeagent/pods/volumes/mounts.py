"""Who mounts what volumes need: the agent itself, or the helper of an agent that may not mount.

Everything is mounted below the agent's root directory, on places that no pod can write to.
Blocking.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from nodeagent.pods.volumes import kernel_mounts, mount_helper

HELPER_UNIT = "nodeagent-mounts.socket"
_DENIED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
_ANSWER_S = 30.0  # for the helper's start, and for others that were first
_REACH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class MountError(Exception):
    """Something cannot be mounted or unmounted; the text says why, and what to do."""


class MountDenied(MountError):
    """This agent may not mount, and has no helper that may."""


class Mounts(Protocol):
    """`place` is an existing directory, or for a file an existing file. MountError, OSError."""

    def tmpfs(self, place: Path, size_bytes: int | None) -> None:
        """Mount an empty tmpfs that everyone may write to."""

    def bind(self, source: int, place: Path) -> None:
        """Mount what a descriptor refers to, so that the runtime sees it."""

    def unmount(self, place: Path) -> None:
        """Undo one of these at once, even where a process still holds a file."""


class OwnMounts:
    """The agent mounts, as it may with CAP_SYS_ADMIN."""

    def tmpfs(self, place: Path, size_bytes: int | None) -> None:
        with _denials():
            kernel_mounts.mount_tmpfs(str(place), size_bytes)

    def bind(self, source: int, place: Path) -> None:
        with _denials():
            kernel_mounts.bind(f"/proc/self/fd/{source}", str(place))
        if not kernel_mounts.is_shared(str(place.parent)):
            kernel_mounts.unmount(str(place))
            raise MountError(
                "what the agent mounts below its root directory is not shared with the runtime; "
                "run `mount --make-shared` on it (docs/pods.md)"
            )

    def unmount(self, place: Path) -> None:
        kernel_mounts.unmount(str(place))


@contextmanager
def _denials() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _DENIED:
            raise
        raise MountDenied(
            f"the agent may not mount ({error.strerror}); start {HELPER_UNIT} and the agent with "
            "--mount-helper, or allow it with the drop-in in docs/systemd.md"
        ) from error


class HelpedMounts:
    """The helper behind the socket at `path` mounts; what it says is checked."""

    def __init__(self, path: str) -> None:
        self._path = path

    def tmpfs(self, place: Path, size_bytes: int | None) -> None:
        self._ask(f"tmpfs {size_bytes or 0}", place)
        if not kernel_mounts.mounts_on(place):
            raise self._unseen(place)

    def bind(self, source: int, place: Path) -> None:
        self._ask("bind", place, source)
        if not os.path.samestat(os.fstat(source), os.lstat(place)):
            raise self._unseen(place)

    def unmount(self, place: Path) -> None:
        self._ask("unmount", place)

    def _ask(self, request: str, place: Path, *sources: int) -> None:
        target = os.open(place, _REACH)
        try:
            answer = self._answer(request, [target, *sources])
        except OSError as error:
            raise MountError(
                f"the mount helper at {self._path} does not answer ({error.strerror or error}); "
                f"see `systemctl status {HELPER_UNIT}`"
            ) from error
        finally:
            os.close(target)
        if answer != mount_helper.DONE:
            shown = answer.decode("ascii", "replace") or "no reason"
            raise MountError(f"the mount helper did not {request} on {place}: {shown!r}")

    def _answer(self, request: str, descriptors: list[int]) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(self._path)
            socket.send_fds(connection, [request.encode()], descriptors)
            return connection.recv(mount_helper.ANSWER_BYTES)

    def _unseen(self, place: Path) -> MountError:
        return MountError(
            f"what the mount helper mounts on {place} is not seen by the agent; run "
            "`mount --make-shared` on the file system of its root directory"
        )


def clear(place: Path, mounts: Mounts) -> None:
    """Unmount all that is mounted on `place` itself; MountError when something stays."""
    for _ in kernel_mounts.mounts_on(place):  # of two in a shared group both go at once
        if kernel_mounts.mounts_on(place):
            mounts.unmount(place)
    if left := kernel_mounts.mounts_on(place):
        raise MountError(f"{place} stays mounted ({left[0].filesystem}); unmount it")
