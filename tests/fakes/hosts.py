"""Captured hosts: trees of kernel files, and the one pod that lives in each of them.

`copy` gives a test its own tree, to change or to remove files from. See fixtures/hosts/README.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from nodeagent.stats.samples import ContainerTarget, PodTarget
from nodeagent.stats.sources import Sources
from orch.component.process.system import Hardware

TREES = Path(__file__).parent.parent / "fixtures" / "hosts"
LAYOUTS = ("hybrid", "v1", "v2")
POD_CGROUP = "/orchpods/pod7d1f6c1e"
CONTAINER_CGROUP = f"{POD_CGROUP}/4f1c2d"
SANDBOX_CGROUP = f"{POD_CGROUP}/5a9b3e"
CONTAINER = ContainerTarget(
    name="web", id="4f1c2d", started_at_ns=1_790_000_000_500_000_000, image="localhost/web:1"
)
POD = PodTarget(
    namespace="shop",
    name="web-0",
    uid="7d1f6c1e",
    cgroup_parent=POD_CGROUP,
    sandbox_id="5a9b3e",
    sandbox_pid=4242,
    started_at_ns=1_789_999_999_000_000_000,
    containers=(CONTAINER,),
)


HARDWARE = Hardware(
    cpu_count=2,
    physical_cores=2,
    memory_bytes=24684084 * 1024,
    swap_bytes=0,
    boot_time_ns=1_700_000_000_000_000_000,
)


class Clock:
    """A wall clock that moves only when told."""

    def __init__(self, now_ns: int = 1_800_000_000_000_000_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


def copy(layout: str, to: Path) -> Path:
    """A private copy of a host's trees; returns its root, with cgroup/ and proc/ below."""
    return Path(shutil.copytree(TREES / layout, to / layout))


def sources(root: Path, *, wall_ns: Callable[[], int] | None = None, **more: object) -> Sources:
    """Sources that read the trees below `root`."""
    return Sources(
        cgroup_root=str(root / "cgroup"),
        proc_root=str(root / "proc"),
        node_path=str(root),
        boot_time_ns=HARDWARE.boot_time_ns,
        wall_ns=wall_ns or Clock(),
        **more,  # type: ignore[arg-type]
    )
