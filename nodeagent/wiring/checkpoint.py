"""Builds what checkpoints containers and manages the archives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from nodeagent import freezer
from nodeagent.archives import bounds, writable_layer
from nodeagent.archives.archive_index import ArchiveIndex
from nodeagent.archives.encryption import EncryptionError, encryption_of
from nodeagent.archives.pruner import Pruner
from nodeagent.archives.reports import CheckpointReports, PodEventRecorder
from nodeagent.archives.store import CheckpointStore
from nodeagent.checkpoint import CheckpointLimits, CheckpointService
from nodeagent.freezer import CGROUP_ROOT, ContainerThawer, FrozenContainerMonitor
from nodeagent.stats.host import processes
from nodeagent.stats.sampler import Sampler
from nodeagent.wiring.base import Base
from orch.component.process.daemon import SetupError


@dataclass(frozen=True, slots=True)
class Checkpoints:
    service: CheckpointService
    pruner: Pruner
    frozen: FrozenContainerMonitor


def build_checkpoints(base: Base, sampler: Sampler, news: PodEventRecorder) -> Checkpoints | None:
    """None without a runtime or its feature gate; SetupError for unusable recipients."""
    if base.runtime is None or not base.features.enabled("ContainerCheckpoint"):
        return None
    config, root_dir = base.config, base.settings.root_dir
    try:
        encryption = encryption_of(config.checkpoint)
    except EncryptionError as error:
        raise SetupError(f"checkpoint.encryption: {error}") from None
    reports, thawer = CheckpointReports(news), ContainerThawer(base.runtime)
    limit = bounds.bounds_of(config.checkpoint)
    pruner = Pruner(ArchiveIndex(root_dir), limit, base.registry, reports=reports)
    service = CheckpointService(
        base.registry,
        base.runtime,
        CheckpointStore(root_dir, encryption),
        pruner,
        thawer=thawer,
        limits=CheckpointLimits(
            timeout_s=config.runtimeRequestTimeout,
            max_concurrent=config.checkpoint.maxConcurrent,
            memory_of=partial(_memory_bytes, sampler),
            layer_of=lambda id_: writable_layer.measure(id_, freezer.processes(CGROUP_ROOT, id_)),
        ),
    )
    watch = FrozenContainerMonitor(
        base.registry, thawer, reports, is_busy=service.is_busy, silent_s=base.watch.silent_s
    )
    return Checkpoints(service, pruner, watch)


def _memory_bytes(sampler: Sampler, container_id: str) -> int:
    """CRIU writes pages that processes share since a fork once for each of them."""
    pids = set(freezer.processes(CGROUP_ROOT, container_id))  # which two hierarchies may name
    return max(sampler.working_set_bytes(container_id), processes.own_memory_bytes(pids))
