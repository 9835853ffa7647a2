"""The bounds of what is reserved from pods, where `enforceNodeAllocatable` asks for them.

The cgroups of the machine's own processes exist already and are never made here. The reference
sets shares of cpu, and limits of memory and process ids (node_container_manager_linux.go); so here.
Blocking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nodeagent.pods.cgroups import pod_cgroups, tree
from nodeagent.pods.cgroups.tree import CgroupError
from nodeagent.pods.spec import spec

_NEXT = "make it, as systemd does for a slice, or leave the part out of enforceNodeAllocatable"


@dataclass(frozen=True, slots=True)
class ReservedPart:
    """The cgroup that `field` of the configuration names, and its amounts; None: no bound.

    `protects`: the kernel leaves it its memory (`MemoryQoS`, cgroup v2).
    """

    field: str
    cgroup: str
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    protects: bool = False

    def bounds(self, *, unified: bool) -> Mapping[str, str]:
        """File → value; on cgroup v1 each is in one hierarchy only."""
        found: dict[str, str] = {}
        if self.cpu_milli is not None:
            found |= pod_cgroups.share_bound(spec.cpu_shares(self.cpu_milli), unified=unified)
        if self.memory_bytes is not None:
            found |= pod_cgroups.memory_bound(self.memory_bytes, unified=unified)
            if self.protects and unified:
                found["memory.min"] = str(self.memory_bytes)
        if self.pids is not None:
            found["pids.max"] = str(self.pids)
        return found


def enforce(part: ReservedPart, root: Path = Path("/sys/fs/cgroup")) -> None:
    """Set the bounds; CgroupError when the cgroup or one of its files is missing or refused."""
    hierarchies = tree.hierarchies(root)
    below = part.cgroup.strip("/")
    directories = [hierarchy / below for hierarchy in hierarchies.values()]
    directories = [directory for directory in directories if directory.is_dir()]
    if not directories:
        raise CgroupError(f"{part.field}: there is no cgroup {part.cgroup}; {_NEXT}")
    for file, value in part.bounds(unified="unified" in hierarchies).items():
        holders = [directory for directory in directories if (directory / file).exists()]
        if not holders:
            raise CgroupError(f"{part.field}: the cgroup {part.cgroup} has no {file}; {_NEXT}")
        try:
            tree.set_bounds(holders[0], {file: value})
        except OSError as error:
            why = error.strerror or error
            raise CgroupError(f"{part.field}: cannot set {file} of {part.cgroup}: {why}") from error
