"""How large a container's writable layer will be in an archive.

The runtime puts what the container changed below its root into the archive, at full length: a
sparse file of gigabytes takes no disk before the checkpoint and gigabytes in it. The layer is
found through the mounts of a process of the container (overlay; other snapshotters count as 0).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from nodeagent.stats.host import directories
from nodeagent.stats.host.directories import BudgetSpent, WalkBudget

_BUDGET = WalkBudget(time_s=5.0)
_ROOT = re.compile(r"^\S+ \S+ \S+ \S+ / .* - overlay \S+ (\S+)$", re.MULTILINE)
_MOUNTS_BYTES = 1 << 20


class LayerUnmeasured(Exception):
    """The layer is too deep or holds too much; the text gives the reason."""


def measure(pids: Iterable[str], *, proc: Path = Path("/proc")) -> int:
    """The bytes of all files in the layer, by their length; 0 when none is found. Blocking.

    `pids` are processes of the container. LayerUnmeasured.
    """
    for pid in pids:
        try:
            with (proc / pid / "mountinfo").open(errors="replace") as mounts:
                found = _ROOT.search(mounts.read(_MOUNTS_BYTES))
        except OSError:
            continue  # it has exited
        options = (
            dict(option.partition("=")[::2] for option in found[1].split(",")) if found else {}
        )
        if not options.get("upperdir"):
            return 0
        try:
            use = directories.measure_directory(options["upperdir"], _BUDGET, apparent=True)
        except BudgetSpent as error:
            raise LayerUnmeasured(str(error)) from error
        return use.used_bytes if use else 0
    return 0
