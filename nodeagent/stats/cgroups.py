"""The readers of all cgroups the agent watches, kept between passes.

As long as the budget of descriptors lasts a cgroup gets a reader that keeps its own; the others
open by name, and are promoted when descriptors become free. Not thread-safe: one pass at a time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

from nodeagent.stats.cgroupreader import (
    CgroupReader,
    CgroupSource,
    KeptReader,
    NameReader,
    Pread,
)
from nodeagent.stats.layout import Layout
from nodeagent.stats.samples import CgroupSample
from orch.component import clock

DEFAULT_FD_BUDGET = 4096


class CgroupReaders:
    """The readers of all cgroups asked for, kept between passes."""

    def __init__(
        self,
        host: Layout,
        *,
        fd_budget: int = DEFAULT_FD_BUDGET,
        wall_ns: Callable[[], int] = clock.wall_ns,
        pread: Pread = os.pread,
    ) -> None:
        self.shared = CgroupSource(host, pread=pread, fd_budget=fd_budget)
        self._wall_ns = wall_ns
        self._readers: dict[str, CgroupReader] = {}

    def read(self, path: str) -> CgroupSample | None:
        """A sample of the cgroup `path` (from the root of every hierarchy); None if not there."""
        path = path.rstrip("/")
        reader = self._readers.get(path)
        if reader is None or not reader.kept:
            affordable = self.shared.fds_left >= self.shared.width
            if affordable or reader is None:
                reader = (KeptReader if affordable else NameReader)(self.shared, path)
                self._readers[path] = reader
        sample = reader.read(self._wall_ns())
        if sample is None:
            del self._readers[path]
        return sample

    def retain(self, paths: Collection[str]) -> None:
        """Close the readers of every cgroup that is not in `paths`."""
        wanted = {path.rstrip("/") for path in paths}
        for path in [path for path in self._readers if path not in wanted]:
            self._readers.pop(path).close()

    def close(self) -> None:
        """Close every descriptor."""
        self.retain(())

    def __len__(self) -> int:
        return len(self._readers)
