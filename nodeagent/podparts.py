"""The parts that keep pods, built and connected; used by `parts` alone.

Without a runtime there is no keeper; without an API there are static pods only, which then have no
mirrors.
"""

from __future__ import annotations

from collections.abc import Callable

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.pods.cgroups import PodCgroups
from nodeagent.pods.confinement import SeccompProfiles
from nodeagent.pods.events import PodEvents
from nodeagent.pods.filesource import FileSource
from nodeagent.pods.imagegc import ImageBounds, ImageCollection
from nodeagent.pods.keeper import PodKeeper
from nodeagent.pods.localstorage import RESOURCE, LocalStorage
from nodeagent.pods.logrotation import LogBounds, LogRotation
from nodeagent.pods.mirror import MirrorPods
from nodeagent.pods.objects import PodObjects
from nodeagent.pods.observer import Observer
from nodeagent.pods.probes import Prober
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.services import PodServices
from nodeagent.pods.sources import ApiSource, PodSource
from nodeagent.pods.status_sync import StatusSync
from nodeagent.pods.terminationmessages import TerminationMessages
from nodeagent.pods.urlsource import UrlSource
from nodeagent.pods.verdicts import VerdictFiles
from nodeagent.pods.vitals import Vitals
from nodeagent.pods.volumes import VolumeStore
from nodeagent.runtime.base import ContainerRuntime
from nodeagent.stats.samples import Sample
from orch.client.events import EventRecorder
from orch.client.resources import ApiClient
from orch.component.daemon import SetupError
from orch.wire import quantity
from orch.wire.core import Node


def build_keeper(
    config: NodeAgentConfiguration,
    registry: PodRegistry,
    runtime: ContainerRuntime | None,
    client: ApiClient | None,
    events: EventRecorder,
    *,
    node: Callable[[], Node | None],
    sampled: Callable[[], Sample | None] = lambda: None,
) -> PodKeeper | None:
    """None when there is no runtime to keep pods in."""
    if runtime is None:
        return None
    node_name = registry.settings.node_name
    api = ApiSource(client, node_name) if client else None
    told = PodEvents(events, api.stored if api else None)
    services = _services(config, registry, runtime, told, PodObjects(client))
    rotation = LogRotation(runtime, registry, _log_bounds(config))

    def evict(uid: str, message: str) -> None:
        registry.counts.evictions[RESOURCE] += keeper.evict(uid, message)

    storage = LocalStorage(registry, sampled, evict)
    images = ImageCollection(runtime, registry, _image_bounds(config))
    further = (rotation.run, storage.run, images.run)
    if client is None or api is None:
        keeper = PodKeeper(services, _static_sources(config, node_name), further=further)
        return keeper
    statuses = StatusSync(client, registry, api)
    mirrors = MirrorPods(client, registry, api, node_name)
    keeper = PodKeeper(
        services,
        [*_static_sources(config, node_name), api],
        further=(*further, statuses.run, mirrors.run),
        on_removed=statuses.removed,
        node=node,
    )
    return keeper


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
        observer=Observer(runtime, registry),
        volumes=VolumeStore(settings.root_dir),
        cgroups=PodCgroups(settings.cgroup_parent, registry.counts.timings),
        seccomp_of=profiles.setting_of,
        vitals=Vitals(prober, registry, events, files=VerdictFiles(settings.root_dir)),
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
