"""The parts that checkpoint containers and keep the archives, built and connected.

Used by `parts` alone. Without a runtime, or with the feature gate off, there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any

from nodeagent import freezer
from nodeagent.archives import bounds
from nodeagent.archives.archive_index import ArchiveIndex
from nodeagent.archives.encryption import EncryptionError, encryption_of
from nodeagent.archives.pruner import Pruner
from nodeagent.archives.reports import CheckpointCounts, CheckpointReports, PodEventRecorder
from nodeagent.archives.store import CheckpointStore
from nodeagent.checkpoint import CheckpointLimits, CheckpointService
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.freezer import ActiveContainer, ContainerThawer, FrozenContainerMonitor
from nodeagent.pods.observed import is_active
from nodeagent.pods.registry import PodRegistry
from nodeagent.runtime.base import ContainerRuntime, ContainerState
from nodeagent.stats.sampler import Sampler
from orch.component.flags.features import Features
from orch.component.process.daemon import SetupError
from orch.component.process.loops import Periodic
from orch.wire.records.pods import Pod

PRUNE_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True)
class Checkpoints:
    service: CheckpointService
    index: ArchiveIndex
    pruner: Pruner
    frozen: FrozenContainerMonitor

    @property
    def counts(self) -> CheckpointCounts:
        return self.pruner.reports.counts

    def loops(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What has to run for as long as the agent does, by name."""
        pruning = Periodic("checkpoint store", self.pruner.step, interval_s=PRUNE_INTERVAL_S)
        self.pruner.wake = pruning.wake
        watching = Periodic("frozen containers", self.frozen.step, interval_s=freezer.INTERVAL_S)
        return {"checkpoint store": pruning.run(), "frozen containers": watching.run()}

    def excess_bytes(self) -> int | None:
        """What the store may not hold, yet does; None until it was looked at."""
        state = self.counts.store
        return state.excess_bytes if state else None


def build(
    config: NodeAgentConfiguration,
    features: Features,
    registry: PodRegistry,
    runtime: ContainerRuntime | None,
    sampler: Sampler,
    news: PodEventRecorder | None,
    silent_s: Callable[[], float],
) -> Checkpoints | None:
    """None when nothing can be checkpointed; SetupError for recipients that cannot be used.

    `silent_s` is for how long the runtime has owed an answer.
    """
    if runtime is None or not features.enabled("ContainerCheckpoint"):
        return None
    root_dir = registry.settings.root_dir
    index, pods = ArchiveIndex(root_dir), _KnownPods(registry)
    pruner = Pruner(
        index, bounds.bounds_of(config.checkpoint), pods, reports=CheckpointReports(news)
    )
    try:
        encryption = encryption_of(config.checkpoint)
    except EncryptionError as error:
        raise SetupError(f"checkpoint.encryption: {error}") from None
    limits = CheckpointLimits(
        timeout_s=config.runtimeRequestTimeout,
        max_concurrent=config.checkpoint.maxConcurrent,
        memory_of=lambda container_id: memory_of(sampler, container_id),
    )
    store = CheckpointStore(root_dir, encryption)
    thawer = ContainerThawer(runtime)
    service = CheckpointService(registry, runtime, store, pruner, thawer=thawer, limits=limits)
    watch = FrozenContainerMonitor(
        pods, thawer, pruner.reports, is_busy=service.is_busy, silent_s=silent_s
    )
    return Checkpoints(service, index, pruner, watch)


def memory_of(sampler: Sampler, container_id: str) -> int:
    """What a container had in memory at the last reading, in bytes; 0 when it was not read."""
    pods = sampler.latest.pods if sampler.latest else ()
    for container in (one for pod in pods for one in pod.containers):
        if container.target.id == container_id and container.cgroup and container.cgroup.memory:
            return container.cgroup.memory.working_set_bytes or 0
    return 0


@dataclass(frozen=True, slots=True)
class _KnownPods:
    registry: PodRegistry

    def find(self, namespace: str, name: str) -> Pod | None:
        return self.registry.find(namespace, name)

    def live_uids(self) -> Collection[str] | None:
        if not self.registry.complete:
            return None
        return {pod.metadata.uid or "" for pod in self.registry.all_desired()}

    def active_containers(self, *, only_unknown: bool) -> list[ActiveContainer]:
        views = self.registry.views_in_doubt() if only_unknown else self.registry.views()
        return [
            ActiveContainer(one.container.id, one.container.name, self.registry.desired(uid))
            for uid, view in views.items()
            for one in view.containers
            if one.container.state is ContainerState.UNKNOWN
            or (not only_unknown and is_active(one))
        ]
