"""Settings of the node object from configuration and flags, checked once at start; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodeagent.config.types import NodeAgentConfiguration, NodeProvider
from nodeagent.node.rules import addresses, capacity, contention, labels, pressure
from nodeagent.node.rules.facts import MachineFacts
from nodeagent.node.rules.pressure import Threshold
from orch.component.flags.features import Features, Stage
from orch.wire.records.core import Taint

DECLARED_FEATURES_GATE = "NodeDeclaredFeatures"
CONTENTION_GATE = "PSINodeCondition"


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """`reserved` counts cpu in thousandths and everything else in units."""

    node_name: str
    agent_version: str
    agent_port: int
    labels: Mapping[str, str] = field(default_factory=dict)  # beyond those every node has
    taints: tuple[Taint, ...] = ()
    max_pods: int = 110
    pods_per_core: int = 0
    reserved: Mapping[str, int] = field(default_factory=dict)
    thresholds: tuple[Threshold, ...] = ()
    pressure_transition_s: float = 300.0
    contention: Mapping[str, float] = field(default_factory=dict)  # condition → percent
    max_images: int = 50
    declared_features: tuple[str, ...] | None = None  # None: the gate is off
    register: bool = True
    provider_id: str = ""


def node_settings(
    config: NodeAgentConfiguration,
    *,
    node_name: str,
    agent_version: str,
    agent_port: int,
    node_labels: Mapping[str, str],
    features: Features,
    provider: NodeProvider | None = None,
) -> NodeSettings:
    """ValueError with a sentence per label that must not be set, and for quantities too large."""
    problems = labels.node_label_problems(node_labels)
    if problems:
        raise ValueError("; ".join(problems))
    reclaim, provider = config.evictionMinimumReclaim, provider or config.nodeProvider
    return NodeSettings(
        node_name=node_name,
        agent_version=agent_version,
        agent_port=agent_port,
        labels={
            **labels.provider_labels(provider.zone, provider.region, provider.instanceType),
            **node_labels,
        },
        taints=tuple(
            Taint(key=taint.key, value=taint.value or None, effect=taint.effect)
            for taint in config.registerWithTaints
        ),
        max_pods=config.maxPods,
        pods_per_core=config.podsPerCore,
        reserved=capacity.parse_reserved(config.systemReserved, config.nodeagentReserved),
        thresholds=(
            *pressure.parse_thresholds(config.evictionHard, min_reclaim=reclaim),
            *pressure.parse_thresholds(
                config.evictionSoft, grace_s=config.evictionSoftGracePeriod, min_reclaim=reclaim
            ),
            pressure.CHECKPOINT_STORE,
        ),
        pressure_transition_s=config.evictionPressureTransitionPeriod,
        contention=_contention(config) if features.enabled(CONTENTION_GATE) else {},
        max_images=config.nodeStatusMaxImages,
        declared_features=_declared(features),
        register=config.registerNode,
        provider_id=config.providerID,
    )


def start_problems(settings: NodeSettings, machine: MachineFacts, node_ip: str) -> list[str]:
    """Why the agent must not start with these settings on this machine, a sentence each."""
    amounts = {capacity.CPU: machine.cpu_count * 1000, capacity.MEMORY: machine.memory_bytes}
    known = {resource: amount for resource, amount in amounts.items() if amount}
    problems = capacity.reservation_problems(known, settings.reserved)
    address = addresses.node_ip_problem(node_ip)
    return [*problems, *([address] if address else [])]


def _contention(config: NodeAgentConfiguration) -> dict[str, float]:
    return {
        contention.SYSTEM_MEMORY: config.systemMemoryContentionThreshold,
        contention.SYSTEM_DISK: config.systemDiskContentionThreshold,
        contention.PODS_MEMORY: config.kubepodsMemoryContentionThreshold,
        contention.PODS_DISK: config.kubepodsDiskContentionThreshold,
    }


def _declared(features: Features) -> tuple[str, ...] | None:
    """The enabled features still in development; None while their publishing is off."""
    if not features.enabled(DECLARED_FEATURES_GATE):
        return None
    return tuple(
        gate.name for gate, is_on in features.all() if is_on and gate.stage is not Stage.STABLE
    )
