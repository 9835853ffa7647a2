"""One reading of everything: the machine, its parts, every pod and container.

Synchronous: the sampler runs it whole in one worker thread, one at a time. A part that cannot be
read is None in the sample and counted in `errors`; a pod whose reading fails for a reason nobody
foresaw is logged and left empty, and the others are read all the same.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from nodeagent.psi import RESOURCES
from nodeagent.runtime.base import SandboxUsage
from nodeagent.stats.cgroup import layout
from nodeagent.stats.cgroup.paths import CgroupPaths
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.host.filesystems import Mounts
from nodeagent.stats.node_reading import NodeReader
from nodeagent.stats.pod_reading import PodReader
from nodeagent.stats.runtime import RuntimeDisks
from nodeagent.stats.samples import NodeSample, PodSample, PodTarget, Sample
from nodeagent.stats.sources import Background, Sources
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

SUPPORTED = "supported"


class Reader:
    """Holds the descriptors between two readings; `errors` counts by kind since the start.

    `psi` holds (source, resource) → supported, disabled or absent; sources are node and cgroup.
    `durations_s` are those of the last reading, by part.
    """

    def __init__(self, sources: Sources, background: Background) -> None:
        self._sources = sources
        self.layout = layout.detect_layout(sources.cgroup_root)
        self.errors: Counter[str] = Counter()
        self.psi: dict[tuple[str, str], str] = {}
        self.durations_s: dict[str, float] = {}
        self._failing: set[str] = set()  # what this reading could not do
        self._defects = OnceLog(log, logging.ERROR)
        self._cgroups = CgroupReaders(
            self.layout, fd_budget=sources.fd_budget, wall_ns=sources.wall_ns
        )
        self._mounts = Mounts(wall_ns=sources.wall_ns)
        self._node = NodeReader(sources, self._cgroups, self._note_psi_state, self._mounts)
        self._paths = CgroupPaths(self.layout)
        self._pods = PodReader(sources, self._cgroups, self._paths, background, self._mounts)

    def read(
        self, targets: Sequence[PodTarget], measured: Mapping[str, SandboxUsage] | None = None
    ) -> Sample:
        """Everything now; readers of cgroups that are no longer wanted are closed.

        `measured` are pods, by uid, whose numbers the runtime gives.
        """
        begun_s = time.perf_counter()
        time_ns = self._sources.wall_ns()
        self._failing.clear()
        self._drop_unwanted(targets)
        disks = self._sources.runtime_disks()
        self._mounts.refresh(self._paths_to_ask(targets, disks))
        node = self._guarded_node(time_ns, disks)
        node_done_s = time.perf_counter()
        measured = measured or {}
        pods = tuple(
            self._guarded_pod(target, measured.get(target.uid), disks, node) for target in targets
        )
        self._pods.forget_others(targets)
        self._defects.retain(self._failing)
        self._note_psi()
        done_s = time.perf_counter()
        self.durations_s = {"node": node_done_s - begun_s, "pods": done_s - node_done_s}
        errors = dict(self.errors + self._cgroups.shared.errors)
        return Sample(time_ns, node, pods, done_s - begun_s, errors)

    @property
    def slow_reads(self) -> Mapping[str, int]:
        """How often files of each kind took 10 ms or more, since the start."""
        return self._cgroups.shared.slow

    def close(self) -> None:
        """Close every descriptor; the next reading opens anew."""
        self._cgroups.close()

    def _paths_to_ask(self, targets: Sequence[PodTarget], disks: RuntimeDisks) -> list[str]:
        """Where file systems are asked: the node's, the images', every volume's."""
        paths = [self._sources.node_path]
        if disks.image_fs:
            paths.append(disks.image_fs.mountpoint)
        return [*paths, *(volume.path for target in targets for volume in target.volumes)]

    def _drop_unwanted(self, targets: Sequence[PodTarget]) -> None:
        parts = [part.cgroup for part in self._sources.system_parts()]
        try:
            self._cgroups.retain(["", *parts, *self._paths.all(targets)])
        except Exception as error:
            self._note_failure("placement", "finding the cgroups of the pods", error)

    def _guarded_node(self, time_ns: int, disks: RuntimeDisks) -> NodeSample:
        try:
            return self._node.read(time_ns, disks)
        except Exception as error:
            self._note_failure("node", "sampling the machine itself", error)
            return NodeSample()

    def _guarded_pod(
        self,
        target: PodTarget,
        measured: SandboxUsage | None,
        disks: RuntimeDisks,
        node: NodeSample,
    ) -> PodSample:
        try:
            if measured is not None:
                return self._pods.from_runtime(target, measured, disks, node)
            return self._pods.read(target, disks, node)
        except Exception as error:
            self._note_failure("pod", f"sampling pod {target.namespace}/{target.name}", error)
            return PodSample(target)

    def _note_failure(self, kind: str, what: str, error: Exception) -> None:
        """Count an error nobody foresaw; its trace is logged when it begins."""
        self.errors[kind] += 1
        self._failing.add(what)
        text = "%s failed; the rest of the sample stands"
        self._defects.failed(text, what, subject=what, error=error)

    def _note_psi(self) -> None:
        for resource in RESOURCES:
            state = self._cgroups.shared.psi.get(resource)
            if state is None and self.layout.unified is None:
                state = "absent"
            if state is not None:
                self._note_psi_state("cgroup", resource, state)

    def _note_psi_state(self, source: str, resource: str, state: str) -> None:
        """Log once per change: an operator must not see the same line at every scrape."""
        if self.psi.get((source, resource)) == state:
            return
        self.psi[source, resource] = state
        if state == SUPPORTED:
            log.info("%s pressure of %ss is reported by the kernel", resource, source)
        else:
            hint = "boot with psi=1 to enable it" if state == "disabled" else "the file is missing"
            log.warning("%s pressure of %ss is %s: %s", resource, source, state, hint)
