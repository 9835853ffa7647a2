"""mount(2) and umount2(2), and what is mounted below a directory; blocking, called from a thread.

The only mounts the agent makes are tmpfs for volumes in memory, and sub-paths of volumes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path

MOUNTINFO = "/proc/self/mountinfo"
_MS_NOSUID, _MS_NODEV, _MS_BIND = 2, 4, 4096
_MNT_DETACH = 2
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountPoint:
    path: str
    filesystem: str


def mount_tmpfs(path: str, size_bytes: int | None) -> None:
    """Mount an empty tmpfs, writable by everyone; OSError names the path."""
    options = "mode=777" + (f",size={size_bytes}" if size_bytes else "")
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(
        libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", _MS_NOSUID | _MS_NODEV, options.encode()),
        path,
    )


def bind(source: str, path: str) -> None:
    """Make what `source` names visible at `path`, too; OSError names the path."""
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.mount(os.fsencode(source), os.fsencode(path), None, _MS_BIND, None), path)


def is_shared(path: str, mountinfo: str = MOUNTINFO) -> bool:
    """Whether what is mounted below a directory is seen in other mount namespaces, too."""
    real = os.path.realpath(path)
    above = [
        (mount.path, shared)
        for mount, shared in map(_parse_shared, Path(mountinfo).read_text().splitlines())
        if mount.path == "/" or real == mount.path or real.startswith(mount.path + "/")
    ]
    longest = max((len(mounted) for mounted, _ in above), default=0)
    return [shared for mounted, shared in above if len(mounted) == longest][-1:] == [True]


def unmount(path: str) -> None:
    """Unmount at once, even where a process still holds a file; OSError names the path.

    What went together with another mount, as mounts do that show each other theirs, is gone.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        _checked(libc.umount2(os.fsencode(path), _MNT_DETACH), path)
    except OSError as error:
        if error.errno != errno.EINVAL or any(m.path == path for m in mounts_below(path)):
            raise


def mounts_below(path: str, mountinfo: str = MOUNTINFO) -> list[MountPoint]:
    """What is mounted on `path` and below it, the deepest and latest first."""
    found = [
        mount
        for mount in map(_parse, Path(mountinfo).read_text().splitlines())
        if mount.path == path or mount.path.startswith(path.rstrip("/") + "/")
    ]
    latest_first = found[::-1]
    return sorted(latest_first, key=lambda mount: mount.path.count("/"), reverse=True)


def _parse(line: str) -> MountPoint:
    fields = line.split(" ")
    path = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
    return MountPoint(path, fields[fields.index("-") + 1])


def _parse_shared(line: str) -> tuple[MountPoint, bool]:
    fields = line.split(" ")
    optional = fields[6 : fields.index("-")]
    return _parse(line), any(field.startswith("shared:") for field in optional)


def _checked(result: int, path: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
