"""The paths of pods' cgroups, and the readers of all that the agent samples, kept between passes.

While the budget of descriptors lasts, a cgroup gets a reader that holds its own; the others open
files by path, and are promoted when descriptors become free. Not thread-safe: one pass at a time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache

from nodeagent.stats.cgroup.layout import Layout, Pread, ReadContext
from nodeagent.stats.cgroup.reader import SLOW_NS, CgroupReader, DescriptorReader, NoDescriptors
from nodeagent.stats.samples import CgroupSample, ContainerTarget, PodTarget
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
                reader = (DescriptorReader if affordable else CgroupReader)(self.context, path)
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
        by_path = self._readers[path] = CgroupReader(self.context, path)
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


_SLICE = ".slice"


class CgroupPaths:
    """The paths of a pod's cgroups, from the root of every hierarchy.

    cgroupfs driver: `<parent>/<container id>`. systemd driver: the parent is a slice, whose name
    spells its path (`a-b.slice` lies in `a.slice`), and a container is a scope named after runtime
    and id (`cri-containerd-<id>.scope`). A path that the target itself gives is used unchanged. A
    path once found is remembered while its container is measured. Lists directories: for the
    worker thread.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._found: dict[str, str] = {}

    def pod(self, pod: PodTarget) -> str:
        """The pod's own cgroup."""
        return expand_slice(pod.cgroup_parent).rstrip("/")

    def container(self, pod: PodTarget, container: ContainerTarget) -> str:
        return container.cgroup or self._find(self.pod(pod), container.id)

    def sandbox(self, pod: PodTarget) -> str:
        """Empty when the pod has no sandbox."""
        if pod.sandbox_cgroup or not pod.sandbox_id:
            return pod.sandbox_cgroup
        return self._find(self.pod(pod), pod.sandbox_id)

    def all(self, pods: Iterable[PodTarget]) -> list[str]:
        """The paths of all cgroups of these pods; forgets those of all others."""
        paths = []
        known: dict[str, str] = {}
        for pod in pods:
            paths.append(self.pod(pod))
            ids = [container.id for container in pod.containers]
            paths.extend(self.container(pod, container) for container in pod.containers)
            if sandbox := self.sandbox(pod):
                paths.append(sandbox)
            ids.append(pod.sandbox_id or "")
            known.update({id_: self._found[id_] for id_ in ids if id_ in self._found})
        self._found = known
        return paths

    def _find(self, parent: str, container_id: str) -> str:
        found = self._found.get(container_id)
        if found is not None:
            return found
        expected = f"{parent}/{container_id}"
        directory = self._layout.directory(parent)
        if directory is None:
            return expected
        if not os.path.isdir(f"{directory}/{container_id}"):
            scope = _scope_in(directory, container_id)
            if scope is None:
                return expected  # not there yet: search again next time
            expected = f"{parent}/{scope}"
        self._found[container_id] = expected
        return expected


@lru_cache(maxsize=1024)  # six times per pod and pass
def expand_slice(path: str) -> str:
    """`a-b.slice` → `/a.slice/a-b.slice`; any other path stays as it is."""
    head, _, name = path.rpartition("/")
    if head or not name.endswith(_SLICE) or name.startswith("-"):
        return path
    words = name.removesuffix(_SLICE).split("-")
    return "".join(f"/{'-'.join(words[:count])}{_SLICE}" for count in range(1, len(words) + 1))


def _scope_in(directory: str, container_id: str) -> str | None:
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    ending = f"{container_id}.scope"
    return next((name for name in sorted(names) if name.endswith(ending)), None)
