"""mount(2) and umount2(2), and the mounts below a directory; blocking, called from a thread.

Mounted are volumes in memory (tmpfs, huge pages), shares of NFS servers, and sub-paths of volumes.
Used by the agent and by its helper: standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MOUNTINFO = "/proc/self/mountinfo"
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_SLAVE = 1, 2, 4, 1 << 12, 1 << 19
_MNT_DETACH, _UMOUNT_NOFOLLOW = 2, 8
# The numbers of open_tree(2), move_mount(2) and mount_setattr(2) are those of every architecture.
_OPEN_TREE, _MOVE, _SET = 428, 429, 442
_HERE, _CLONE, _EMPTY_PATH = -100, 1, 0x1000
_MOVE_EMPTY_PATH, _FOLLOW = 4, 0x10  # a descriptor's path is a link
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountPoint:
    path: str
    filesystem: str
    is_shared: bool = False


def mount_tmpfs(path: str, size_bytes: int | None) -> None:
    """Mount an empty tmpfs, writable by everyone as /tmp is; OSError names the path."""
    options = "mode=1777" + (f",size={size_bytes}" if size_bytes else "")
    _mount("tmpfs", path, "tmpfs", options)


def mount_hugepages(path: str, page_bytes: int, size_bytes: int | None) -> None:
    """Mount empty memory of huge pages of one size, writable by everyone; OSError names the path.

    EINVAL where the kernel has no pages of that size.
    """
    size = f",size={size_bytes}" if size_bytes else ""
    _mount("hugetlbfs", path, "hugetlbfs", f"mode=1777,pagesize={page_bytes}{size}")


def mount_nfs(path: str, device: str, options: str, read_only: bool) -> None:
    """Mount a share of a server, whose address is among the options; OSError names the path.

    Waits for the server, for minutes; only the end of the process ends that.
    """
    _mount(device, path, "nfs", options, _MS_RDONLY if read_only else 0)


def _mount(source: str, path: str, filesystem: str, options: str, flags: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = os.fsencode(source), os.fsencode(path), filesystem.encode()
    flags |= _MS_NOSUID | _MS_NODEV
    _checked(libc.mount(*words, flags, options.encode()), path)


def bind(source: str, path: str) -> None:
    """Bind-mount `source` on `path`; OSError names the path.

    What is mounted in the source later is seen there, too; from kernel 5.12 on, undoing the bind
    leaves it where it was, because the new mount is a slave before anybody sees it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    tree = libc.syscall(_OPEN_TREE, _HERE, os.fsencode(source), _CLONE | os.O_CLOEXEC)
    if tree < 0 and ctypes.get_errno() == errno.ENOSYS:
        _checked(libc.mount(os.fsencode(source), os.fsencode(path), None, _MS_BIND, None), path)
        return
    _checked(min(tree, 0), path)
    try:
        propagation = struct.pack("4Q", 0, 0, _MS_SLAVE, 0)
        made = libc.syscall(_SET, tree, b"", _EMPTY_PATH, propagation, len(propagation))
        if made < 0 and ctypes.get_errno() != errno.ENOSYS:
            _checked(made, path)
        flags = _MOVE_EMPTY_PATH | _FOLLOW
        _checked(libc.syscall(_MOVE, tree, b"", _HERE, os.fsencode(path), flags), path)
    finally:
        os.close(tree)


def is_shared(path: str, mountinfo: str = MOUNTINFO) -> bool:
    """Whether mounts below a directory propagate to other mount namespaces."""
    real = os.path.realpath(path)
    above = [
        mount
        for mount in table(mountinfo)
        if mount.path == "/" or real == mount.path or real.startswith(mount.path + "/")
    ]
    nearest = max(above[::-1], key=lambda mount: len(mount.path), default=None)  # the latest of it
    return nearest is not None and nearest.is_shared


def unmount(path: str) -> None:
    """Unmount at once, even where a process still holds a file; OSError names the path.

    A mount that has disappeared with its peer in a shared group is no error.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _checked(libc.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW), path)
    except OSError as error:
        if error.errno != errno.EINVAL or any(m.path == path for m in mounts_below(path)):
            raise


def mounts_on(place: Path) -> list[MountPoint]:
    """What is mounted on `place` itself, the latest first."""
    real = os.path.realpath(place)
    return [mount for mount in mounts_below(real) if mount.path == real]


def mounts_below(path: str, mountinfo: str = MOUNTINFO) -> list[MountPoint]:
    """The mounts on `path` and below it, the deepest and latest first."""
    return below(path, table(mountinfo))


def below(path: str, mounts: Iterable[MountPoint]) -> list[MountPoint]:
    """Those of `mounts`, in the order they were mounted."""
    found = [
        mount
        for mount in mounts
        if mount.path == path or mount.path.startswith(path.rstrip("/") + "/")
    ]
    latest_first = found[::-1]
    return sorted(latest_first, key=lambda mount: mount.path.count("/"), reverse=True)


def table(mountinfo: str = MOUNTINFO) -> list[MountPoint]:
    """In the order they were mounted.

    A pod names what is mounted as a sub-path of its volume: any bytes, and only the kernel's own
    newline ends a line.
    """
    return [_parse(line.split(b" ")) for line in Path(mountinfo).read_bytes().split(b"\n") if line]


def _parse(fields: list[bytes]) -> MountPoint:
    path = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), fields[4])
    separator = fields.index(b"-")
    is_shared = any(field.startswith(b"shared:") for field in fields[6:separator])
    return MountPoint(os.fsdecode(path), os.fsdecode(fields[separator + 1]), is_shared)


def _checked(result: int, path: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
