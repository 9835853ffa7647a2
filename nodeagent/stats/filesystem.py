"""Disks: what a file system holds, and which block devices there are.

File systems are asked by statvfs, devices are named as /proc/diskstats names them. What single
directories use is `walk`'s business; `within` puts both together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from nodeagent.stats.cgroupvalues import UINT64_MAX
from nodeagent.stats.samples import FsSample


def read_filesystem(path: str, time_ns: int) -> FsSample | None:
    """The file system that holds `path`; None when it cannot be asked.

    Not every driver answers with sense: what is negative or beyond 64 bits is None.
    """
    try:
        stats = os.statvfs(path)
    except (OSError, ValueError):  # a path from a manifest may hold a NUL
        return None
    unit = stats.f_frsize
    # 0 of 0: no fixed number of inodes; cephfs says -1 of those it has
    counts_inodes = 0 < stats.f_files >= stats.f_ffree
    return FsSample(
        time_ns,
        available_bytes=_amount(stats.f_bavail * unit),
        capacity_bytes=_amount(stats.f_blocks * unit),
        used_bytes=_amount((stats.f_blocks - stats.f_bfree) * unit),
        inodes_free=stats.f_ffree if counts_inodes else None,
        inodes=stats.f_files if counts_inodes else None,
        inodes_used=stats.f_files - stats.f_ffree if counts_inodes else None,
    )


def _amount(value: int) -> int | None:
    return value if 0 <= value <= UINT64_MAX else None


def parse_diskstats(data: bytes) -> dict[tuple[int, int], str]:
    """/proc/diskstats → the names of block devices by major and minor number."""
    names = {}
    for line in data.splitlines():
        words = line.split(None, 3)
        if len(words) >= 3 and words[0].isdigit() and words[1].isdigit():
            names[int(words[0]), int(words[1])] = words[2].decode("utf-8", "replace")
    return names


def device_of(path: str, names: Mapping[tuple[int, int], str]) -> str:
    """`/dev/sda1` for the block device that holds `path`; empty when there is none."""
    try:
        device = os.stat(path).st_dev
    except OSError:
        return ""
    name = names.get((os.major(device), os.minor(device)))
    return f"/dev/{name}" if name else ""


def within(whole: FsSample | None, part: FsSample | None) -> FsSample | None:
    """What `part` uses, beside what the file system that holds it has; None without `part`."""
    if part is None or whole is None:
        return part
    return FsSample(
        part.time_ns,
        whole.available_bytes,
        whole.capacity_bytes,
        part.used_bytes,
        whole.inodes_free,
        whole.inodes,
        part.inodes_used,
    )
