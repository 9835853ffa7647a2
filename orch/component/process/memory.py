"""The memory that this process may use, and uses: its control group's, else the machine's.

A limit counts what the kernel can take back, the page cache above all; the use does not. Files of
/proc and /sys that are missing or hidden are no error. Blocking, but short: nothing is on a disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self")
_LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
_USED = ("memory.current", "memory.usage_in_bytes")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_NO_LIMIT = 1 << 60  # version 1 shows the largest number of whole pages


class ProcessMemory:
    """`proc` and `cgroups` are the places of the kernel's files."""

    def __init__(self, proc: Path = _SELF, cgroups: Path = _CGROUPS) -> None:
        self._proc = proc
        groups = tuple(_groups(proc, cgroups))
        self._limited, self._cgroup_limit = _tightest(groups)

    def limit_bytes(self) -> int:
        """The tightest limit of the group and of those above it, at most the machine's memory."""
        machine = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
        return min(self._cgroup_limit or machine, machine)

    def used_bytes(self) -> int:
        """Of the group with that limit, if there is one, but at least of this process."""
        resident = int((_read(self._proc / "statm") or "0 0").split()[1]) * _PAGE_BYTES
        return max(resident, self._cgroup_used())

    def _cgroup_used(self) -> int:
        if self._limited is None:
            return 0
        used = next((n for name in _USED if (n := _number(self._limited / name)) is not None), 0)
        lines = (_read(self._limited / "memory.stat") or "").splitlines()
        stat = dict(line.split() for line in lines)
        names = ("total_inactive_file", "total_active_file")
        if names[0] not in stat:
            names = ("inactive_file", "active_file")
        return used - sum(int(stat.get(name, 0)) for name in names)


def _groups(proc: Path, cgroups: Path) -> Iterator[Path]:
    """The process's group of memory and those above it, of either version."""
    for line in (_read(proc / "cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root = cgroups / "memory" if controllers else cgroups
        own = root / path.lstrip("/")
        yield from (one for one in (own, *own.parents) if one.is_relative_to(root))


def _tightest(groups: tuple[Path, ...]) -> tuple[Path | None, int]:
    """The group with the lowest limit, and that limit; None and 0 without one."""
    found = [
        (limit, group)
        for group in groups
        for name in _LIMITS
        if (limit := _number(group / name)) is not None and limit < _NO_LIMIT
    ]
    limit, tightest = min(found, key=lambda pair: pair[0], default=(0, None))
    return tightest, limit


def _number(path: Path) -> int | None:
    """None for a file that is missing, or says that there is no limit."""
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
