"""Directories whose later mounts the runtime sees too.

The runtime lives in a mount namespace of its own. What the agent mounts afterwards (the tmpfs of an
emptyDir volume in memory) reaches it only below a mount point that both share, so the directory is
bound onto itself and marked shared before the namespace is made.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from .progress import run, say

_OPTIONAL = 6  # mountinfo: the optional fields follow the sixth


def share(directory: Path) -> None:
    """Make `directory` a shared mount point; what is one already stays as it is."""
    directory.mkdir(parents=True, exist_ok=True)
    if is_shared(directory):
        return
    say(f"sharing the mounts below {directory}")
    run(["mount", "-n", "--bind", str(directory), str(directory)])
    run(["mount", "-n", "--make-shared", str(directory)])


def unshare(directories: Iterable[str]) -> None:
    """Unmount those directories and what is mounted below them, the deepest first."""
    for directory in directories:
        for path in _mounts_below(Path(directory)):
            run(["umount", "-n", "-l", path])


def is_shared(directory: Path) -> bool:
    """Tell whether the topmost mount on exactly this directory passes mounts on."""
    marks = [fields[_OPTIONAL] for fields in _mounts() if fields[4] == str(directory)]
    return bool(marks) and marks[-1].startswith("shared:")


def _mounts_below(directory: Path) -> list[str]:
    found = [f[4] for f in _mounts() if Path(f[4]).is_relative_to(directory)]
    return sorted(found, key=lambda path: path.count(os.sep), reverse=True)


def _mounts() -> list[list[str]]:
    return [line.split(" ") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
