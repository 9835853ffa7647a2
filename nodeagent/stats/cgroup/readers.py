"""The readers of all cgroups the agent watches, kept between passes.

As long as the budget of descriptors lasts a cgroup gets a reader that keeps its own; the others
open by name, and are promoted when descriptors become free. Not thread-safe: one pass at a time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection

from nodeagent.stats.cgroup.layout import CgroupSource, Layout, Pread
from nodeagent.stats.cgroup.reader import (
    SLOW_NS,
    CgroupReader,
    KeptReader,
    NameReader,
    NoDescriptors,
)
from nodeagent.stats.samples import CgroupSample
from orch.component.process import clock

log = logging.getLogger(__name__)

DEFAULT_FD_BUDGET = 8192  # a full node, 110 pods of three containers each, needs 6,600


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

    def read(self, path: str, *, above: str = "") -> CgroupSample | None:
        """A sample of the cgroup `path` (from the root of every hierarchy); None if not there.

        `above` was read a moment before: where this one lies below it, and that one shows that
        nothing changed, this one is not read.
        """
        path = path.rstrip("/")
        reader = self._reader(path)
        whole = self._readers.get(above)
        if whole is not None and above and path.startswith(f"{above}/"):
            sample = reader.shown_by(whole)
            if sample is not None:
                return sample
        time_ns = self._wall_ns()
        begun_ns = time.perf_counter_ns()
        try:
            sample = reader.read(time_ns)
        except NoDescriptors:
            sample = self._read_without_keeping(path, reader, time_ns)
        if time.perf_counter_ns() - begun_ns >= SLOW_NS:
            reader.leave_out_slow_files()
        if sample is None:
            del self._readers[path]
        return sample

    def _reader(self, path: str) -> CgroupReader:
        reader = self._readers.get(path)
        if reader is None or not reader.kept:
            affordable = self.shared.fds_left >= self.shared.width
            if affordable or reader is None:
                reader = (KeptReader if affordable else NameReader)(self.shared, path)
                self._readers[path] = reader
        return reader

    def _read_without_keeping(
        self, path: str, reader: CgroupReader, time_ns: int
    ) -> CgroupSample | None:
        """The process may open fewer files than the budget says: keep no more than now."""
        reader.close()
        self.shared.fds_left = 0
        log.warning(
            "no descriptor left to keep cgroup files open; raise the limit of open files "
            "(LimitNOFILE) or lower openFileBudget"
        )
        named = self._readers[path] = NameReader(self.shared, path)
        try:
            return named.read(time_ns)
        except NoDescriptors:
            self.shared.errors["descriptors"] += 1
            return None

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
