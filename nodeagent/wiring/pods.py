"""The parts that keep pods, built and connected; used by `parts` alone.

Without a runtime pods are not kept; without an API there are static pods only, which then have no
mirrors.

The seccomp setting of a container about to be made, with its profile's file looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nodeagent import seccomp
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.pods.backoff import StepFailed
from nodeagent.pods.cgroups.pod_cgroups import PodCgroups
from nodeagent.pods.events import PodEvents
from nodeagent.pods.images.garbage_collection import ImageBounds, ImageCollection
from nodeagent.pods.local_storage import RESOURCE, LocalStorage
from nodeagent.pods.logs.rotation import LogBounds, LogRotation
from nodeagent.pods.logs.termination_messages import TerminationMessages
from nodeagent.pods.pleg import Pleg
from nodeagent.pods.pod_workers import PodWorkers
from nodeagent.pods.prober.health import ContainerHealth
from nodeagent.pods.prober.probes import Prober
from nodeagent.pods.prober.results import ResultFiles
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.sources.files import FileSource
from nodeagent.pods.sources.mirror import MirrorPods
from nodeagent.pods.sources.source import ApiSource, PodSource
from nodeagent.pods.sources.url import UrlSource
from nodeagent.pods.status_sync import StatusSync
from nodeagent.pods.volumes.objects import PodObjects
from nodeagent.pods.volumes.volumes import VolumeStore
from nodeagent.pods.worker.services import PodServices
from nodeagent.profiles import file
from nodeagent.runtime.base import ContainerRuntime, SeccompKind, SeccompSetting
from nodeagent.seccomp import SeccompError
from nodeagent.stats.samples import Sample
from orch.client.events import EventRecorder
from orch.client.resources import ApiClient
from orch.component.process.daemon import SetupError
from orch.wire import quantity
from orch.wire.records.core import Node
from orch.wire.records.pods import Container, Pod


class SeccompProfiles:
    """`root` is the absolute directory of Localhost profiles."""

    def __init__(self, root: str, *, default: bool) -> None:
        self._root = root
        self._default = default

    async def setting_of(self, pod: Pod, container: Container) -> SeccompSetting:
        """StepFailed when the profile cannot be applied; a missing file is waited for."""
        awaits = ""
        try:
            found = seccomp.resolve(
                pod, container, seccomp_default=self._default, seccomp_root=self._root
            )
            setting = found.setting
            awaits = setting.localhost_path if setting.kind is SeccompKind.LOCALHOST else ""
            await asyncio.to_thread(
                file.require_profile_file, setting, root=self._root, source=found.source
            )
        except SeccompError as error:
            raise StepFailed(container.name, error.reason, error.message, awaits=awaits) from error
        return setting


def build_pod_workers(
    config: NodeAgentConfiguration,
    registry: PodRegistry,
    runtime: ContainerRuntime | None,
    client: ApiClient | None,
    events: EventRecorder,
    *,
    node: Callable[[], Node | None],
    sampled: Callable[[], Sample | None] = lambda: None,
) -> PodWorkers | None:
    """None when there is no runtime to keep pods in."""
    if runtime is None:
        return None
    node_name = registry.settings.node_name
    api = ApiSource(client, node_name) if client else None
    told = PodEvents(events, api.stored if api else None)
    services = _services(config, registry, runtime, told, PodObjects(client))
    rotation = LogRotation(runtime, registry, _log_bounds(config))

    def evict(uid: str, message: str) -> None:
        registry.counts.evictions[RESOURCE] += workers.evict(uid, message)

    storage = LocalStorage(registry, sampled, evict)
    images = ImageCollection(runtime, registry, _image_bounds(config))
    further = (rotation.run, storage.run, images.run)
    if client is None or api is None:
        workers = PodWorkers(services, _static_sources(config, node_name), further=further)
        return workers
    statuses = StatusSync(client, registry, api)
    mirrors = MirrorPods(client, registry, api, node_name)
    workers = PodWorkers(
        services,
        [*_static_sources(config, node_name), api],
        further=(*further, statuses.run, mirrors.run),
        on_removed=statuses.removed,
        node=node,
    )
    return workers


def _services(
    config: NodeAgentConfiguration,
    registry: PodRegistry,
    runtime: ContainerRuntime,
    events: PodEvents,
    objects: PodObjects,
) -> PodServices:
    settings = registry.settings
    profiles = SeccompProfiles(f"{settings.root_dir}/seccomp", default=config.seccompDefault)
    prober = Prober(runtime)
    return PodServices(
        runtime=runtime,
        registry=registry,
        pleg=Pleg(runtime, registry),
        volumes=VolumeStore(settings.root_dir),
        cgroups=PodCgroups(settings.cgroup_parent, registry.counts.timings),
        seccomp_of=profiles.setting_of,
        health=ContainerHealth(prober, registry, events, files=ResultFiles(settings.root_dir)),
        prober=prober,
        messages=TerminationMessages(settings.root_dir),
        objects=objects,
        events=events,
    )


def _static_sources(config: NodeAgentConfiguration, node_name: str) -> list[PodSource]:
    sources: list[PodSource] = []
    if path := config.staticPodPath:
        sources.append(FileSource(path, node_name, full_interval_s=config.fileCheckFrequency))
    if url := config.staticPodURL:
        interval_s, headers = config.httpCheckFrequency, config.staticPodURLHeader
        try:
            sources.append(UrlSource(url, node_name, headers=headers, interval_s=interval_s))
        except ValueError as error:
            raise SetupError(f"staticPodURL: {error}") from None
    return sources


def _image_bounds(config: NodeAgentConfiguration) -> ImageBounds:
    return ImageBounds(
        high_percent=config.imageGCHighThresholdPercent,
        low_percent=config.imageGCLowThresholdPercent,
        min_age_s=config.imageMinimumGCAge,
        max_age_s=config.imageMaximumGCAge,
    )


def _log_bounds(config: NodeAgentConfiguration) -> LogBounds:
    return LogBounds(
        max_bytes=quantity.to_bytes(config.containerLogMaxSize),
        max_files=config.containerLogMaxFiles,
        interval_s=config.containerLogMonitorInterval,
    )
