"""The objects that the workers of all pods share, seccomp profiles among them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from nodeagent import seccomp
from nodeagent.pods.backoff import StepFailed
from nodeagent.pods.cgroups.pod_cgroups import PodCgroups
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.events import PodEvents
from nodeagent.pods.images.pulling import ImagePulls
from nodeagent.pods.logs.links import LogLinks
from nodeagent.pods.logs.termination_messages import TerminationMessages
from nodeagent.pods.pleg import Pleg
from nodeagent.pods.prober.health import ContainerHealth
from nodeagent.pods.prober.probes import Prober
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec import spec
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.pods.volumes.hosts import HostsFiles
from nodeagent.pods.volumes.objects import PodObjects
from nodeagent.pods.volumes.volumes import ProjectedData, VolumeStore
from nodeagent.profiles import file
from nodeagent.runtime.base import ContainerRuntime, SeccompKind, SeccompSetting
from nodeagent.seccomp import SeccompError
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.wire.records.pods import Container, Pod


class SeccompProfiles:
    """`root` is the absolute directory of Localhost profiles."""

    def __init__(self, root: str, *, default: bool) -> None:
        self._root = root
        self._default = default

    async def setting_of(self, pod: Pod, container: Container) -> SeccompSetting:
        """StepFailed when the profile cannot be applied; the worker awaits a missing file."""
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


@dataclass(slots=True)
class PodServices:
    """Only `settings` changes: `pod_workers` updates it from the Node object."""

    settings: PodSettings
    runtime: ContainerRuntime
    registry: PodRegistry
    counts: PodCounts
    pleg: Pleg
    volumes: VolumeStore
    cgroups: PodCgroups
    seccomp: SeccompProfiles
    health: ContainerHealth
    prober: Prober
    messages: TerminationMessages
    log_links: LogLinks
    hosts: HostsFiles
    objects: PodObjects
    events: PodEvents
    pulls: ImagePulls = field(default_factory=ImagePulls)
    now: Now = clock.utc_now

    async def projected_data(self, pod: Pod) -> ProjectedData:
        """The current data for the pod's files and variables."""
        return ProjectedData(self.settings.allocatable, await self.objects.of(pod))

    def grace_s(self, uid: str) -> int:
        """How long a graceful stop of a pod, desired or not, may take."""
        pod = self.registry.desired(uid)
        return spec.grace_period_s(pod) if pod else self.registry.view(uid).grace_period_s()
