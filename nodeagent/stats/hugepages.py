"""Huge pages set aside by the kernel, from /sys/kernel/mm/hugepages under an injected root."""

from __future__ import annotations

import re
from pathlib import Path

_FOLDER = re.compile(r"hugepages-([0-9]+)kB")


def read_hugepages(sys_root: str = "/sys") -> dict[int, int]:
    """Page size in bytes → bytes of all pages of that size; {} where the kernel has none."""
    found = {}
    for folder in Path(sys_root, "kernel/mm/hugepages").glob("hugepages-*"):
        match = _FOLDER.fullmatch(folder.name)
        pages = _number(folder / "nr_hugepages")
        if match and pages is not None:
            size_bytes = int(match[1]) * 1024
            found[size_bytes] = pages * size_bytes
    return found


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
