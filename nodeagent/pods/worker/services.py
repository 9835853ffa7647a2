"""The objects that the workers of all pods share, seccomp profiles among them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nodeagent import seccomp
from nodeagent.pods.backoff import StepFailed
from nodeagent.pods.cgroups.pod_cgroups import PodCgroups
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.devices.assignment import Devices
from nodeagent.pods.events import PodEvents
from nodeagent.pods.images.node_logins import NodeLogins
from nodeagent.pods.images.plugins import CredentialPlugins
from nodeagent.pods.images.pulling import ImagePulls
from nodeagent.pods.logs.links import LogLinks
from nodeagent.pods.logs.termination_messages import TerminationMessages
from nodeagent.pods.pleg import Pleg
from nodeagent.pods.prober.health import ContainerHealth
from nodeagent.pods.prober.probes import Prober
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.resize.allocations import Allocations
from nodeagent.pods.resize.in_force import SizesInForce
from nodeagent.pods.resize.state_file import StateFile
from nodeagent.pods.runtime_classes import RuntimeClasses
from nodeagent.pods.spec import spec
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.pods.user_namespaces import UserNamespaces
from nodeagent.pods.volumes.hosts import HostsFiles
from nodeagent.pods.volumes.objects import PodObjects
from nodeagent.pods.volumes.volumes import ProjectedData, VolumeStore
from nodeagent.profiles import file
from nodeagent.runtime.base import ContainerRuntime, SandboxSpec
from nodeagent.runtime.isolation import SeccompKind, SeccompSetting
from nodeagent.seccomp import SeccompError
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.wire.records.pods import Container, Pod, ResourceStatus

_AT_ONCE = 4  # resizes on this node: the runtime has other work too


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


GRANTED_FILE, SIZES_FILE = "allocated_pods_state", "actuated_pods_state"  # in its directory


def restored_sizes(
    root_dir: str, events: PodEvents, counts: PodCounts, now: Now = clock.utc_now
) -> tuple[Allocations, SizesInForce]:
    """What the last agent had granted, and what is in force. SetupError for damaged files."""
    granted = StateFile(f"{root_dir}/{GRANTED_FILE}", "what pods were granted")
    allocations = Allocations(granted, events, counts, now)
    allocations.restore()
    sizes = SizesInForce(StateFile(f"{root_dir}/{SIZES_FILE}", "the sizes in force"))
    sizes.restore()
    return allocations, sizes


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
    allocations: Allocations
    sizes: SizesInForce
    users: UserNamespaces
    classes: RuntimeClasses
    node_logins: NodeLogins
    devices: Devices | None = None  # None: this agent gives none
    pulls: ImagePulls = field(default_factory=ImagePulls)
    plugins: CredentialPlugins | None = None  # None: the operator has none
    now: Now = clock.utc_now
    resizing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def projected_data(self, pod: Pod) -> ProjectedData:
        """The current data for the pod's files and variables."""
        return ProjectedData(self.settings.allocatable, await self.objects.of(pod))

    def device_health(self, uid: str) -> Mapping[str, list[ResourceStatus]]:
        """The health of a pod's devices by container, where that is shown."""
        return self.devices.statuses(uid) if self.devices and self.devices.shows_health else {}

    async def sandbox_spec(self, pod: Pod, attempt: int) -> SandboxSpec:
        """Without handler, and what it resolves names by. SpecError, OSError."""
        wanted = spec.sandbox_spec(pod, self.settings, attempt=attempt)
        if pod.spec.hostUsers is not False:
            return wanted
        return replace(wanted, user_namespace=await self.users.of(pod.metadata.uid or ""))

    def grace_s(self, uid: str) -> int:
        """How long a graceful stop of a pod, desired or not, may take."""
        pod = self.registry.desired(uid)
        return spec.grace_period_s(pod) if pod else self.registry.view(uid).grace_period_s()
