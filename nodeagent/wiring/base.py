"""The objects that all parts of an agent share: options, host facts, connections, and the state of
its pods and its node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodeagent.config.current import CurrentConfig
from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.metrics.calls import RuntimeOperations
from nodeagent.node.status_loop import OwnNode
from nodeagent.pods.cgroups import tree
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec import env
from nodeagent.pods.spec.dns import DnsSettings
from nodeagent.pods.spec.policy import ResourcePolicy
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
from orch.component.process.daemon import SetupError
from orch.wire import names
from orch.wire.validation import is_dns1123_subdomain

_LEASE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Clients:
    """The Lease has a connection of its own, so that nothing delays it."""

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

    @property
    def transports(self) -> Sequence[Transport]:
        clients = (self.clients.general, self.clients.lease) if self.clients else ()
        return [client.transport for client in clients]

    async def close(self) -> None:
        for transport in self.transports:
            await transport.close()
        if self.runtime:
            await self.runtime.close()


def _node_name(hostname: str) -> str:
    name = hostname.lower()
    if not is_dns1123_subdomain(name):
        rule = "letters, digits, '-' and '.', first and last a letter or a digit"
        raise SetupError(f"{hostname!r} cannot name a node ({rule}): set --hostname-override")
    return name


def build_base(options: Options, current: CurrentConfig, features: Features) -> Base:
    """Reads the host's facts and the kubeconfig; opens no connection."""
    host = read_host_facts()
    node_name = _node_name(options.hostname_override or host.hostname)
    config, operations, runtime = current.value, RuntimeOperations(), None
    if endpoint := config.containerRuntimeEndpoint:
        timeout_s = config.runtimeRequestTimeout
        runtime = CriRuntime(endpoint, timeout_s=timeout_s, observe=operations.observe)
    clients = _clients(options.kubeconfig) if options.kubeconfig else None
    events = EventRecorder(clients.general if clients else None, "nodeagent", host=node_name)
    own_node = OwnNode(events)
    server = clients.general.transport.config.server if clients else ""
    settings = replace(
        _pod_settings(options, config, host, node_name),
        api_server=env.api_server_variables(config.podAPIServer or server),
        policy=resource_policy(config, features, host.swap_bytes),
    )
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


def resource_policy(
    config: NodeAgentConfiguration,
    features: Features,
    swap_bytes: int,
    *,
    cgroup_root: Path = Path("/sys/fs/cgroup"),
) -> ResourcePolicy:
    """`swap_bytes` is the machine's swap, of which containers get none unless configured."""
    limited = config.memorySwap.swapBehavior == "LimitedSwap"
    return ResourcePolicy(
        unified=tree.is_unified(cgroup_root),
        cfs_quota=config.cpuCFSQuota,
        cfs_period_usec=round(config.cpuCFSQuotaPeriod * 1e6),
        swap_bytes=swap_bytes * limited if tree.limits_swap(cgroup_root) else None,
        throttling_factor=config.memoryThrottlingFactor if features.enabled("MemoryQoS") else None,
        protects_memory=config.memoryReservationPolicy == "TieredReservation",
        kills_groups=not config.singleProcessOOMKill,
    )


def pods_cgroup(config: NodeAgentConfiguration) -> str:
    """The cgroup above those of all pods."""
    return config.cgroupRoot.rstrip("/") + tree.PARENT


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
        apparmor=host.apparmor,
        unsafe_sysctls=tuple(config.allowedUnsafeSysctls),
        dns=DnsSettings(tuple(config.clusterDNS), config.clusterDomain, config.resolvConf),
    )
