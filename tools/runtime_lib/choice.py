"""Chooses a program's runtime: the one named, else one that runs, else none."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from . import cri
from .progress import say

VARIABLE = "CONTAINER_RUNTIME_ENDPOINT"
SOCKETS = (Path("/run/containerd/containerd.sock"), Path("/var/run/crio/crio.sock"))
_OLDEST_CONTAINERD = 2


def find(environment: Mapping[str, str], sockets: Iterable[Path] = SOCKETS) -> str | None:
    """Return the endpoint to use, or None when no runtime fits.

    A socket counts when CRI is served on it right now; containerd must be version 2 or later.
    """
    named = environment.get(VARIABLE, "")
    if named:
        return named if "://" in named else f"unix://{named}"
    return next((f"unix://{path}" for path in sockets if _serves(path)), None)


def fits(version: cri.Version) -> bool:
    """Tell whether a runtime is new enough: containerd from 2.0 on, anything else as it is."""
    if version.name != "containerd":
        return True
    major = re.match(r"v?(\d+)", version.version)
    return major is not None and int(major[1]) >= _OLDEST_CONTAINERD


def _serves(path: Path) -> bool:
    try:
        version = cri.version(path)
    except cri.CallFailed:
        return False
    if not fits(version):
        say(f"{path}: {version.name} {version.version} is too old, 2.0 is needed")
    return fits(version)
