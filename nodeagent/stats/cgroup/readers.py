"""The readers of all cgroups that the agent samples, cached between passes.

While the budget of descriptors lasts, a cgroup gets a reader that holds its own; the others open
files by path, and are promoted when descriptors become free. Not thread-safe: one pass at a time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection

from nodeagent.stats.cgroup.layout import Layout, Pread, ReadContext
from nodeagent.stats.cgroup.reader import (
    SLOW_NS,
    CgroupReader,
    DescriptorReader,
    NoDescriptors,
    PathReader,
)
from nodeagent.stats.samples import CgroupSample
from orch.component.process import clock

log = logging.getLogger(__name__)

DEFAULT_FD_BUDGET = 8192  # a full node, 110 pods of three containers each, needs 6,600


class CgroupReaders:
    """Creates a reader when a cgroup is first read; `retain` drops those no longer needed."""

    def __init__(
        self,
        host: Layout,
        *,
        fd_budget: int = DEFAULT_FD_BUDGET,
        wall_ns: Callable[[], int] = clock.wall_ns,
        pread: Pread = os.pread,
    ) -> None:
        self.context = ReadContext(host, pread=pread, fd_budget=fd_budget)
        self._wall_ns = wall_ns
        self._readers: dict[str, CgroupReader] = {}

    def read(self, path: str, *, parent: str = "") -> CgroupSample | None:
        """A sample of the cgroup `path` (from the root of every hierarchy); None if it is missing.

        `parent` was read a moment ago: while it shows no change, cgroups below it are not read.
        """
        path = path.rstrip("/")
        reader = self._reader(path)
        parent_reader = self._readers.get(parent)
        if parent_reader is not None and parent and path.startswith(f"{parent}/"):
            sample = reader.if_unchanged(parent_reader)
            if sample is not None:
                return sample
        time_ns = self._wall_ns()
        begun_ns = time.perf_counter_ns()
        try:
            sample = reader.read(time_ns)
        except NoDescriptors:
            sample = self._read_by_path(path, reader, time_ns)
        if time.perf_counter_ns() - begun_ns >= SLOW_NS:
            reader.skip_slow_files()
        if sample is None:
            del self._readers[path]
        return sample

    def _reader(self, path: str) -> CgroupReader:
        reader = self._readers.get(path)
        if reader is None or not reader.holds_descriptors:
            affordable = self.context.fds_left >= self.context.width
            if affordable or reader is None:
                reader = (DescriptorReader if affordable else PathReader)(self.context, path)
                self._readers[path] = reader
        return reader

    def _read_by_path(self, path: str, reader: CgroupReader, time_ns: int) -> CgroupSample | None:
        """The process may open fewer files than the budget allows: hold no more from now on."""
        reader.close()
        self.context.fds_left = 0
        log.warning(
            "no descriptor left to keep cgroup files open; raise the limit of open files "
            "(LimitNOFILE) or lower openFileBudget"
        )
        by_path = self._readers[path] = PathReader(self.context, path)
        try:
            return by_path.read(time_ns)
        except NoDescriptors:
            self.context.errors["descriptors"] += 1
            return None

    def retain(self, paths: Collection[str]) -> None:
        """Close the readers of every cgroup that is not in `paths`."""
        wanted = {path.rstrip("/") for path in paths}
        for path in [path for path in self._readers if path not in wanted]:
            self._readers.pop(path).close()

    def forget_texts(self) -> None:
        """Parse everything in the next pass, as if every file had changed."""
        for reader in self._readers.values():
            reader.forget_texts()

    def close(self) -> None:
        """Close every descriptor."""
        self.retain(())

    def __len__(self) -> int:
        return len(self._readers)
