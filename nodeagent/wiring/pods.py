"""Builds what runs pods. Without an API there are only static pods, without mirrors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodeagent.config.credential_providers import TokenAttributes, read_providers
from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.node.rules import capacity
from nodeagent.pods.cgroups.pod_cgroups import PodCgroups
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.devices.assignment import Devices
from nodeagent.pods.devices.pod_resources import PodResources
from nodeagent.pods.events import PodEvents
from nodeagent.pods.images.garbage_collection import ImageBounds, ImageCollection
from nodeagent.pods.images.node_logins import NodeLogins
from nodeagent.pods.images.plugins import CredentialPlugins, Identify, Plugin, TokenUse
from nodeagent.pods.images.pulling import ImagePulls
from nodeagent.pods.local_storage import LocalStorageEviction
from nodeagent.pods.logs.links import LogLinks
from nodeagent.pods.logs.rotation import LogBounds, LogRotation
from nodeagent.pods.logs.termination_messages import TerminationMessages
from nodeagent.pods.pleg import Pleg
from nodeagent.pods.pod_workers import PodWorkers
from nodeagent.pods.prober.health import ContainerHealth, FrozenContainers
from nodeagent.pods.prober.probes import Prober
from nodeagent.pods.prober.results import ResultFiles
from nodeagent.pods.resize.allocations import FEATURE
from nodeagent.pods.runtime_classes import RuntimeClasses
from nodeagent.pods.sources.files import FileSource
from nodeagent.pods.sources.mirror import MirrorPods
from nodeagent.pods.sources.source import ApiSource, PodSource
from nodeagent.pods.sources.url import UrlSource
from nodeagent.pods.status_sync import StatusSync
from nodeagent.pods.user_namespaces import UserNamespaces
from nodeagent.pods.volumes.hosts import HostsFiles
from nodeagent.pods.volumes.mounts import HelpedMounts, OwnMounts
from nodeagent.pods.volumes.objects import PodObjects
from nodeagent.pods.volumes.volumes import VolumeStore
from nodeagent.pods.worker.services import PodServices, SeccompProfiles, restored_sizes
from nodeagent.runtime.base import ContainerRuntime
from nodeagent.stats.sampler import Sampler
from nodeagent.wiring.base import Base
from orch.component.process.daemon import SetupError
from orch.wire import quantity


@dataclass(frozen=True, slots=True)
class Pods:
    """`statuses` and `mirrors` are None without an API, `devices` where plugins are turned off."""

    workers: PodWorkers
    log_rotation: LogRotation
    local_storage: LocalStorageEviction
    images: ImageCollection
    devices: Devices | None
    pod_resources: PodResources | None
    statuses: StatusSync | None
    mirrors: MirrorPods | None


def build_api_source(base: Base) -> ApiSource | None:
    if base.client is None:
        return None
    return ApiSource(base.client, base.node_name, silence_s=base.config.watchSilence)


def build_events(base: Base, source: ApiSource | None) -> PodEvents:
    return PodEvents(base.events, source.stored if source else None)


def build_pods(
    base: Base,
    sampler: Sampler,
    source: ApiSource | None,
    events: PodEvents,
    checkpoints: FrozenContainers | None,
) -> Pods | None:
    """None without a runtime."""
    if base.runtime is None:
        return None
    registry, counts, config = base.registry, base.counts, base.config
    statuses = mirrors = None
    if base.client and source:
        statuses = StatusSync(base.client, registry, source, counts.timings)
        mirrors = MirrorPods(base.client, registry, source, base.node_name)
    devices = build_devices(base)
    services = _services(base, base.runtime, events, checkpoints, devices)
    workers = PodWorkers(
        services,
        build_sources(base, source),
        on_removed=statuses.removed if statuses else None,
        node=base.own_node.judging,
    )
    base.own_node.on_known = workers.node_known
    return Pods(
        workers=workers,
        log_rotation=LogRotation(
            base.runtime,
            registry,
            log_bounds(config),
            messages=services.messages,
            places=(base.settings.root_dir, services.settings.pod_logs_dir),
        ),
        local_storage=LocalStorageEviction(
            registry,
            counts,
            lambda: sampler.latest,
            workers.evict,
            sampler.background.directories.excessive,
        ),
        devices=devices,
        pod_resources=PodResources(base.settings.root_dir, devices, registry, counts)
        if devices
        else None,
        images=ImageCollection(base.runtime, registry, counts, _image_bounds(config)),
        statuses=statuses,
        mirrors=mirrors,
    )


def build_devices(base: Base) -> Devices | None:
    if not base.config.devicePlugins:
        return None
    return Devices(
        base.settings.root_dir,
        base.registry,
        base.counts,
        on_amounts=base.own_node.changed.set,
        shows_health=base.features.enabled("ResourceHealthStatus"),
    )


def _services(
    base: Base,
    runtime: ContainerRuntime,
    events: PodEvents,
    checkpoints: FrozenContainers | None,
    devices: Devices | None,
) -> PodServices:
    settings, counts, root_dir = base.settings, base.counts, base.settings.root_dir
    prober = Prober(runtime, any_host=base.config.probeHostPolicy == "any")
    helper = base.options.mount_helper
    allocations, sizes = restored_sizes(root_dir, events, counts)
    allocations.enabled = base.features.enabled(FEATURE)
    objects = PodObjects(base.client)
    return PodServices(
        settings=settings,
        runtime=runtime,
        registry=base.registry,
        counts=counts,
        pleg=Pleg(runtime, base.registry, counts, base.node_name),
        volumes=VolumeStore(root_dir, HelpedMounts(helper) if helper else OwnMounts()),
        cgroups=PodCgroups(
            settings.cgroup_parent,
            counts.timings,
            pids_limit=base.config.podPidsLimit,
            memory_bytes=memory_of_pods(base.config, settings.memory_capacity_bytes),
            policy=settings.policy,
        ),
        seccomp=SeccompProfiles(f"{root_dir}/seccomp", default=base.config.seccompDefault),
        health=ContainerHealth(
            prober, events, counts, files=ResultFiles(root_dir), checkpoints=checkpoints
        ),
        prober=prober,
        messages=TerminationMessages(root_dir),
        log_links=LogLinks(settings.pod_logs_dir),
        hosts=HostsFiles(root_dir, settings=settings.dns),
        objects=objects,
        events=events,
        allocations=allocations,
        sizes=sizes,
        users=UserNamespaces(root_dir),
        classes=RuntimeClasses(base.client),
        node_logins=NodeLogins(root_dir),
        devices=devices,
        pulls=image_pulls(base.config),
        plugins=credential_plugins(base.options, counts, objects.identity),
    )


def memory_of_pods(config: NodeAgentConfiguration, capacity_bytes: int) -> int | None:
    """What all pods may use together: what is not reserved; None: unlimited.

    As with the reference, the hard eviction threshold is within it: the agent acts first.
    """
    reserved = capacity.parse_reserved(config.systemReserved, config.nodeagentReserved)
    left_bytes = capacity_bytes - reserved.get(capacity.MEMORY, 0)
    return left_bytes if "pods" in config.enforceNodeAllocatable and left_bytes > 0 else None


def build_sources(base: Base, api: ApiSource | None) -> list[PodSource]:
    """Of static pods, as configured, and of those at the API server."""
    config, node_name = base.config, base.node_name
    sources: list[PodSource] = []
    if path := config.staticPodPath:
        sources.append(FileSource(path, node_name, full_interval_s=config.fileCheckFrequency))
    if url := config.staticPodURL:
        interval_s, headers = config.httpCheckFrequency, config.staticPodURLHeader
        try:
            sources.append(UrlSource(url, node_name, headers=headers, interval_s=interval_s))
        except ValueError as error:
            raise SetupError(f"staticPodURL: {error}") from None
    return [*sources, *([api] if api else ())]


def image_pulls(config: NodeAgentConfiguration) -> ImagePulls:
    at_once = 1 if config.serializeImagePulls else config.maxParallelImagePulls
    return ImagePulls(at_once, per_s=config.registryPullQPS, burst=config.registryBurst)


def credential_plugins(
    options: Options, counts: PodCounts, identify: Identify | None = None
) -> CredentialPlugins | None:
    """SetupError for plugins that cannot be used as they are configured."""
    directory = options.image_credential_provider_bin_dir
    found = read_providers(options.image_credential_provider_config, directory)
    plugins = [
        Plugin(
            provider.name,
            str(Path(directory, provider.name).absolute()),
            provider.matchImages,
            provider.defaultCacheDuration,
            provider.args or (),
            {variable.name: variable.value for variable in provider.env or ()},
            tokens=_token_use(provider.tokenAttributes),
        )
        for provider in found
    ]
    return CredentialPlugins(plugins, counts, identify) if plugins else None


def _token_use(given: TokenAttributes | None) -> TokenUse | None:
    if given is None:
        return None
    return TokenUse(
        given.serviceAccountTokenAudience,
        per_token=given.cacheType == "Token",
        needs_account=given.requireServiceAccount,
        required=given.requiredServiceAccountAnnotationKeys,
        optional=given.optionalServiceAccountAnnotationKeys,
    )


def _image_bounds(config: NodeAgentConfiguration) -> ImageBounds:
    return ImageBounds(
        high_percent=config.imageGCHighThresholdPercent,
        low_percent=config.imageGCLowThresholdPercent,
        min_age_s=config.imageMinimumGCAge,
        max_age_s=config.imageMaximumGCAge,
    )


def log_bounds(config: NodeAgentConfiguration) -> LogBounds:
    return LogBounds(
        max_bytes=quantity.to_bytes(config.containerLogMaxSize),
        max_files=config.containerLogMaxFiles,
        interval_s=config.containerLogMonitorInterval,
    )
