"""Who mounts what volumes need: the agent itself, or the helper of an agent that may not mount.

Everything is mounted below the agent's root directory, on places that no pod can write to.
Blocking.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from nodeagent.pods.volumes import kernel_mounts, mount_helper, nfs
from nodeagent.pods.volumes.kernel_mounts import MountPoint
from nodeagent.pods.volumes.nfs import NoAnswer, Share

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

    def hugepages(self, place: Path, page_bytes: int, size_bytes: int | None) -> None:
        """Mount empty memory of huge pages that everyone may write to."""

    def nfs(self, place: Path, share: Share) -> None:
        """Mount a share of a server, which may not answer."""

    def bind(self, source: int, place: Path) -> None:
        """Mount what a descriptor refers to, so that the runtime sees it."""

    def unmount(self, place: Path, *, share: bool = False) -> None:
        """Undo one of these at once, even where a process still holds a file; `share`: it is a
        server's, or a part of that.
        """


class OwnMounts:
    """The agent mounts, as it may with CAP_SYS_ADMIN."""

    def __init__(self) -> None:
        self._shared = (0, 0)  # the directory that was last found to be: the table is long

    def tmpfs(self, place: Path, size_bytes: int | None) -> None:
        with _denials():
            kernel_mounts.mount_tmpfs(str(place), size_bytes)

    def hugepages(self, place: Path, page_bytes: int, size_bytes: int | None) -> None:
        with _denials():
            kernel_mounts.mount_hugepages(str(place), page_bytes, size_bytes)

    def nfs(self, place: Path, share: Share) -> None:
        try:
            with _denials(errno.EPERM):  # a server may deny access too
                nfs.mount_apart(str(place), share)
        except NoAnswer as error:
            raise MountError(str(error)) from error
        except OSError as error:
            raise MountError(error.strerror or str(error)) from error

    def bind(self, source: int, place: Path) -> None:
        with _denials():
            kernel_mounts.bind(f"/proc/self/fd/{source}", str(place))
        parent = os.stat(place.parent)
        if (parent.st_dev, parent.st_ino) == self._shared:
            return
        if not kernel_mounts.is_shared(str(place.parent)):
            kernel_mounts.unmount(str(place))
            raise MountError(
                "what the agent mounts below its root directory is not shared with the runtime; "
                "run `mount --make-shared` on it (docs/pods.md)"
            )

        self._shared = parent.st_dev, parent.st_ino

    def unmount(self, place: Path, *, share: bool = False) -> None:
        if not share:
            kernel_mounts.unmount(str(place))
            return
        try:
            nfs.unmount_apart(str(place))
        except NoAnswer as error:
            raise MountError(str(error)) from error


@contextmanager
def _denials(*numbers: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (numbers or _DENIED):
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
        if not os.path.ismount(place):
            raise self._unseen(place)

    def hugepages(self, place: Path, page_bytes: int, size_bytes: int | None) -> None:
        self._ask(f"hugepages {page_bytes} {size_bytes or 0}", place)
        if not os.path.ismount(place):
            raise self._unseen(place)

    def nfs(self, place: Path, share: Share) -> None:
        self._ask(b"nfs " + share.text(), place)
        if not nfs.mounted_shares([str(place)]):  # to look at the place may take for ever
            raise self._unseen(place)

    def bind(self, source: int, place: Path) -> None:
        self._ask("bind", place, source)
        if not os.path.samestat(os.fstat(source), os.lstat(place)):
            raise self._unseen(place)

    def unmount(self, place: Path, *, share: bool = False) -> None:
        if not share:
            self._ask("unmount", place)
            return
        try:
            self._ask(f"unmount {place.name}", place.parent)  # to open it may take for ever
        except MountError:
            if nfs.mounted_shares([str(place)]):
                raise

    def _ask(self, request: str | bytes, place: Path, *sources: int) -> None:
        target = os.open(place, _REACH)
        sent = request.encode() if isinstance(request, str) else request
        try:
            answer = self._answer(sent, [target, *sources])
        except OSError as error:
            raise MountError(
                f"the mount helper at {self._path} does not answer ({error.strerror or error}); "
                f"see `systemctl status {HELPER_UNIT}`"
            ) from error
        finally:
            os.close(target)
        if answer != mount_helper.DONE:
            shown = answer.decode("ascii", "replace") or "no answer in time"
            asked = os.fsdecode(sent)
            raise MountError(f"the mount helper refused {asked!r} for {place}: {shown}")

    def _answer(self, request: bytes, descriptors: list[int]) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(self._path)
            socket.send_fds(connection, [request], descriptors)
            return connection.recv(mount_helper.ANSWER_BYTES)

    def _unseen(self, place: Path) -> MountError:
        return MountError(
            f"what the mount helper mounts on {place} is not seen by the agent; run "
            "`mount --make-shared` on the file system of its root directory"
        )


def clear(
    directory: Path,
    mounts: Mounts,
    is_own: Callable[[MountPoint], bool] | None = None,
    known: Sequence[MountPoint] | None = None,
) -> list[MountPoint]:
    """Unmount what is one's own, of what is on top at each place on and below a directory.

    Unless told, only what is mounted on the directory itself is. What is mounted below goes along.
    Returns what is still mounted there. MountError when something of one's own stays. `known` is
    the table of mounts as it was just now; it is long, and read again only after a change.
    """
    real = os.path.realpath(directory)
    is_own = is_own or (lambda mount: mount.path == real)
    found = kernel_mounts.below(real, known) if known else kernel_mounts.mounts_below(real)
    while own := [mount for mount in _on_top(found) if is_own(mount)]:
        for mount in own:  # once: of two in a shared group both go
            mounts.unmount(Path(mount.path), share=mount.filesystem in nfs.FILESYSTEMS)
        left = kernel_mounts.mounts_below(real)
        if len(left) >= len(found):
            raise MountError(f"{own[0].path} stays mounted ({own[0].filesystem}); unmount it")
        found = left
    return found


def _on_top(found: Sequence[MountPoint]) -> list[MountPoint]:
    latest: dict[str, MountPoint] = {}
    for mount in found:
        latest.setdefault(mount.path, mount)
    return [*latest.values()]
