"""Where the sampler reads: roots, paths and budgets, fixed when the agent starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nodeagent.stats import cgroups
from nodeagent.stats.layers import RuntimeDisks
from nodeagent.stats.samples import SystemPart
from orch.component import clock


@dataclass(frozen=True, slots=True)
class Sources:
    """Where everything is read from. `node_path` lies on the file system called node fs."""

    cgroup_root: str = "/sys/fs/cgroup"
    proc_root: str = "/proc"
    node_path: str = "/"
    system_parts: Callable[[], Sequence[SystemPart]] = tuple
    fd_budget: int = cgroups.DEFAULT_FD_BUDGET
    runtime_disks: Callable[[], RuntimeDisks] = RuntimeDisks
    wall_ns: Callable[[], int] = field(default=clock.wall_ns)
