"""hostPath volumes: what must be there, and what is made when it is not; blocking."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from nodeagent.pods import directories
from orch.wire.pods import HostPathVolume

_FILE_TESTS: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "DirectoryOrCreate": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "FileOrCreate": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def prepare(volume: HostPathVolume) -> str:
    """The path, once it is what `type` says; ValueError, OSError."""
    kind, path = volume.type or "", Path(volume.path)
    if not kind:
        return volume.path
    if kind not in _FILE_TESTS:
        raise ValueError(f"hostPath.type {kind!r} is not one of {', '.join(_FILE_TESTS)}")
    if kind == "DirectoryOrCreate" and not path.exists():
        directories.make(path)
    if kind == "FileOrCreate" and not path.exists():
        path.touch()
        path.chmod(0o644)
    fits, shown = _FILE_TESTS[kind]
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise ValueError(f"hostPath {volume.path} does not exist, and type is {kind}") from None
    if not fits(mode):
        raise ValueError(f"hostPath {volume.path} is not {shown}")
    return volume.path
