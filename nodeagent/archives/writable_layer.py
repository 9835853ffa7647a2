"""How large a container's writable layer will be in an archive.

The runtime puts what the container changed below its root into the archive, at full length: a
sparse file of gigabytes takes no disk before the checkpoint and gigabytes in it. The layer is
found where containerd has mounted it, which no container can change, else through the mounts of a
process of the container, which may have another root (overlay; other snapshotters count as 0).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from nodeagent.stats.host import directories
from nodeagent.stats.host.directories import BudgetSpent, WalkBudget

_BUDGET = WalkBudget(time_s=5.0)
_OVERLAY = r"^\S+ \S+ \S+ \S+ {} .* - overlay \S+ (\S+)$"
_MOUNTS_BYTES = 1 << 20
_OWN_MOUNTS_BYTES = 1 << 26


class LayerUnmeasured(Exception):
    """The layer is too deep or holds too much; the text gives the reason."""


def measure(container_id: str, pids: Iterable[str], *, proc: Path = Path("/proc")) -> int:
    """The bytes of all files in the layer, by their length; 0 when none is found. Blocking.

    `pids` are processes of the container. LayerUnmeasured.
    """
    upper = _upper(container_id, pids, proc)
    if not upper:
        return 0
    try:
        use = directories.measure_directory(upper, _BUDGET, apparent=True)
    except BudgetSpent as error:
        raise LayerUnmeasured(str(error)) from error
    return use.used_bytes if use else 0


def _upper(container_id: str, pids: Iterable[str], proc: Path) -> str | None:
    """The layer's directory, None if it is not found."""
    place = rf"\S*/{re.escape(container_id)}/rootfs"
    if upper := _upper_of(proc / "self" / "mountinfo", place, _OWN_MOUNTS_BYTES):
        return upper
    for pid in pids:
        with contextlib.suppress(OSError):  # it has exited
            return _upper_of(proc / pid / "mountinfo", "/", _MOUNTS_BYTES)
    return None


def _upper_of(mountinfo: Path, place: str, size: int) -> str | None:
    with mountinfo.open(errors="replace", newline="\n") as mounts:
        found = re.search(_OVERLAY.format(place), mounts.read(size), re.MULTILINE)
    options = found[1].split(",") if found else ()
    return dict(option.partition("=")[::2] for option in options).get("upperdir")
