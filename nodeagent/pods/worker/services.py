"""What the work on every pod of this node shares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from nodeagent.pods.cgroups.pod_cgroups import PodCgroups
from nodeagent.pods.events import PodEvents
from nodeagent.pods.logs.termination_messages import TerminationMessages
from nodeagent.pods.pleg import Pleg
from nodeagent.pods.prober.health import ContainerHealth
from nodeagent.pods.prober.probes import Prober
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec import spec
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.pods.volumes.objects import PodObjects
from nodeagent.pods.volumes.volumes import Knowledge, VolumeStore
from nodeagent.runtime.base import ContainerRuntime, SeccompSetting
from orch.component.process import clock
from orch.component.process.clock import Now
from orch.wire.records.pods import Container, Pod

# The seccomp setting of a container; raises StepFailed when it cannot be applied.
SeccompOf = Callable[[Pod, Container], Awaitable[SeccompSetting]]


@dataclass(frozen=True, slots=True)
class PodServices:
    runtime: ContainerRuntime
    registry: PodRegistry
    pleg: Pleg
    volumes: VolumeStore
    cgroups: PodCgroups
    seccomp_of: SeccompOf
    health: ContainerHealth
    prober: Prober
    messages: TerminationMessages
    objects: PodObjects = field(default_factory=lambda: PodObjects(None))
    events: PodEvents = field(default_factory=PodEvents)
    now: Now = field(default=clock.utc_now)

    @property
    def settings(self) -> PodSettings:
        return self.registry.settings

    async def knowledge(self, pod: Pod) -> Knowledge:
        """What the pod's files and variables may show, as it is now."""
        return Knowledge(self.settings.allocatable, await self.objects.of(pod))

    def grace_s(self, uid: str) -> int:
        """How long a graceful stop of a pod may take, wanted or not."""
        pod = self.registry.desired(uid)
        return spec.grace_period_s(pod) if pod else self.registry.view(uid).grace_period_s()
