"""The objects that every part of an agent is built from: its options, its host, the ends of its
connections, and who knows what of its pods and its node.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nodeagent.config.current import CurrentConfig
from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.metrics.calls import RuntimeOperations
from nodeagent.node.status_loop import OwnNode
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.runtime.base import ContainerRuntime
from nodeagent.runtime.cri import CriRuntime
from nodeagent.runtime.health import RuntimeWatch
from nodeagent.stats.host.machine import HostFacts, read_host_facts
from orch.client.events import EventRecorder
from orch.client.kubeconfig import load_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.flags.features import Features
from orch.wire import names

_LEASE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Clients:
    """Two clients with connections of their own, so that nothing delays the Lease."""

    general: ApiClient
    lease: ApiClient


@dataclass(frozen=True, slots=True)
class Base:
    """`runtime` and `clients` are None on a node that runs without."""

    options: Options
    current: CurrentConfig
    features: Features
    host: HostFacts
    node_name: str
    operations: RuntimeOperations
    runtime: ContainerRuntime | None
    watch: RuntimeWatch
    clients: Clients | None
    events: EventRecorder
    own_node: OwnNode
    settings: PodSettings
    registry: PodRegistry
    counts: PodCounts

    @property
    def config(self) -> NodeAgentConfiguration:
        return self.current.value

    @property
    def client(self) -> ApiClient | None:
        return self.clients.general if self.clients else None

    async def close(self) -> None:
        """End the connections."""
        if self.clients:
            await self.clients.general.transport.close()
            await self.clients.lease.transport.close()
        if self.runtime:
            await self.runtime.close()


def build_base(options: Options, current: CurrentConfig, features: Features) -> Base:
    """Reads the machine and the kubeconfig; connects to nothing."""
    host = read_host_facts()
    node_name = (options.hostname_override or host.hostname).lower()
    operations = RuntimeOperations()
    runtime = _runtime(current.value, operations)
    clients = _clients(options.kubeconfig) if options.kubeconfig else None
    events = EventRecorder(clients.general if clients else None, "nodeagent", host=node_name)
    own_node = OwnNode(events)
    settings = _pod_settings(options, current.value, host, node_name)
    return Base(
        options=options,
        current=current,
        features=features,
        host=host,
        node_name=node_name,
        operations=operations,
        runtime=runtime,
        watch=RuntimeWatch(runtime, on_change=own_node.changed.set),
        clients=clients,
        events=events,
        own_node=own_node,
        settings=settings,
        registry=PodRegistry(settings),
        counts=PodCounts(),
    )


def pods_cgroup(config: NodeAgentConfiguration) -> str:
    """Below which cgroup pods run."""
    return config.cgroupRoot.rstrip("/") + "/orchpods"


def _runtime(
    config: NodeAgentConfiguration, operations: RuntimeOperations
) -> ContainerRuntime | None:
    endpoint = config.containerRuntimeEndpoint
    if not endpoint:
        return None
    return CriRuntime(endpoint, timeout_s=config.runtimeRequestTimeout, observe=operations.observe)


def _clients(kubeconfig: str) -> Clients:
    config, agent = load_kubeconfig(kubeconfig), f"nodeagent/{names.VERSION}"
    return Clients(
        general=ApiClient(Transport(config, user_agent=agent)),
        lease=ApiClient(Transport(config, timeout_s=_LEASE_TIMEOUT_S, user_agent=f"{agent} lease")),
    )


def _pod_settings(
    options: Options, config: NodeAgentConfiguration, host: HostFacts, node_name: str
) -> PodSettings:
    return PodSettings(
        node_name=node_name,
        root_dir=str(Path(options.root_dir).absolute()),
        pod_logs_dir=config.podLogsDir,
        cgroup_parent=pods_cgroup(config),
        host_ip=options.node_ip,
        memory_capacity_bytes=host.memory_bytes,
        kernel_version=host.kernel_version,
    )
