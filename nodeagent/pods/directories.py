"""Directories with the mode they are to have, whatever the umask of the process; blocking.

The shipped unit runs the agent with umask 0077: what containers and log readers of other users
must reach has to be opened on purpose.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)


def make(path: Path, mode: int = 0o755) -> bool:
    """Make a directory and its missing parents with `mode`; True when it was not there. OSError."""
    missing: list[Path] = []
    current = path
    while not current.exists():
        missing.append(current)
        current = current.parent
    if not missing and not path.is_dir():
        raise NotADirectoryError(20, "not a directory", str(path))
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        directory.chmod(mode)
    return bool(missing)


def give_to(path: Path, group: int | None) -> int | None:
    """Make a directory `group`'s; the group, None when there is none or it may not be. OSError."""
    if group is None or path.stat().st_gid == group:
        return group
    try:
        os.chown(path, -1, group)
    except PermissionError:
        log.warning("%s cannot be given to group %d: the agent lacks CAP_CHOWN", path, group)
        return None
    return group
