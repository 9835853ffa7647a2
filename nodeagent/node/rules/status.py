"""The Node object to register, the status to report, and whether it changed; pure.

The comparison ignores the order of conditions and their heartbeat times
(pkg/kubelet/kubelet_node_status.go).
"""

from __future__ import annotations

from typing import Any

from nodeagent.node.rules import capacity, conditions, labels
from nodeagent.node.rules.conditions import ConditionValue
from nodeagent.node.rules.facts import ImageFacts, MachineFacts, NodeFacts
from nodeagent.node.rules.pressure import PressureState
from nodeagent.node.rules.settings import NodeSettings
from nodeagent.runtime.isolation import RuntimeFeatures
from orch.wire.records.core import (
    ContainerImage,
    DaemonEndpoint,
    Node,
    NodeAddress,
    NodeDaemonEndpoints,
    NodeFeatures,
    NodeRuntimeHandler,
    NodeRuntimeHandlerFeatures,
    NodeSpec,
    NodeStatus,
    NodeSwapStatus,
    NodeSystemInfo,
)
from orch.wire.records.meta import ObjectMeta

NAMES_PER_IMAGE = 5
_MAX_HANDLERS = 100


def condition_values(
    settings: NodeSettings, facts: NodeFacts, state: PressureState
) -> tuple[ConditionValue, ...]:
    amounts = _capacity(settings, facts)
    return conditions.node_conditions(
        facts,
        state,
        amounts,
        transition_s=settings.pressure_transition_s,
        watched=settings.contention,
    )


def initial_node(settings: NodeSettings, facts: NodeFacts, state: PressureState, now: str) -> Node:
    """The object to register."""
    return Node(
        metadata=ObjectMeta(name=settings.node_name, labels=wanted_labels(settings, facts.machine)),
        spec=NodeSpec(
            taints=list(settings.taints) or None, providerID=settings.provider_id or None
        ),
        status=node_status(settings, facts, condition_values(settings, facts, state), None, now),
    )


def wanted_labels(settings: NodeSettings, machine: MachineFacts) -> dict[str, str]:
    """Labels of --node-labels win over the default ones."""
    default = labels.default_labels(
        machine.hostname, machine.operating_system, machine.architecture
    )
    return {**default, **settings.labels}


def node_status(
    settings: NodeSettings,
    facts: NodeFacts,
    values: tuple[ConditionValue, ...],
    existing: NodeStatus | None,
    now: str,
) -> NodeStatus:
    """The status to report, on top of `existing` (None at registration), stamped `now`."""
    amounts = _capacity(settings, facts)
    usable = capacity.allocatable(amounts, settings.reserved, settings.thresholds)
    before = existing.conditions if existing else None
    offered = existing.capacity if existing else None
    endpoint = DaemonEndpoint(Port=settings.agent_port)
    features = settings.declared_features
    return NodeStatus(
        capacity={
            **capacity.as_texts(amounts),
            **capacity.extended(facts.devices, offered, lambda found: found.capacity),
        },
        allocatable={
            **capacity.as_texts(usable),
            **capacity.extended(facts.devices, offered, lambda found: found.allocatable),
        },
        conditions=conditions.stamped(values, before, now),
        addresses=[NodeAddress(type=a.type, address=a.address) for a in facts.addresses],
        daemonEndpoints=NodeDaemonEndpoints(nodeagentEndpoint=endpoint, kubeletEndpoint=endpoint),
        nodeInfo=_node_info(settings, facts),
        images=_images(facts.images, settings.max_images),
        declaredFeatures=sorted(set(features)) if features is not None else None,
        runtimeHandlers=_handlers(facts.features) if facts.features else None,
        features=_features(facts.features) if facts.features else None,
    )


def differs(before: NodeStatus, after: NodeStatus) -> bool:
    """Whether `after` has news; fields that only others write do not count."""
    return _comparable(before) != _comparable(after)


def patch(before: NodeStatus, after: NodeStatus) -> dict[str, Any]:
    """The merge patch of the status: each top-level field that changed, whole."""
    old, new = before.to_wire(), after.to_wire()
    changed = {name: value for name, value in new.items() if old.get(name) != value}
    gone = {
        name: None
        for name in ("declaredFeatures", "features", "images", "runtimeHandlers")
        if name in old and name not in new
    }
    for name in ("capacity", "allocatable"):  # merged entry by entry
        if name in changed:
            removed = dict.fromkeys(old.get(name, {}).keys() - new[name].keys())
            changed[name] = {**removed, **new[name]}
    return {"status": {**changed, **gone}}


def _comparable(status: NodeStatus) -> dict[str, Any]:
    data = status.to_wire()
    listed = sorted(data.get("conditions") or (), key=lambda condition: str(condition["type"]))
    for condition in listed:
        condition.pop("lastHeartbeatTime", None)
    data["conditions"] = listed
    return {name: data[name] for name in NodeStatus.model_fields if data.get(name)}


def _capacity(settings: NodeSettings, facts: NodeFacts) -> dict[str, int]:
    return capacity.capacity(
        facts, max_pods=settings.max_pods, pods_per_core=settings.pods_per_core
    )


def _node_info(settings: NodeSettings, facts: NodeFacts) -> NodeSystemInfo:
    machine = facts.machine
    return NodeSystemInfo(
        machineID=machine.machine_id,
        systemUUID=machine.system_uuid,
        bootID=machine.boot_id,
        kernelVersion=machine.kernel_version,
        osImage=machine.os_image,
        containerRuntimeVersion=_runtime_version(facts),
        kubeletVersion=settings.agent_version,
        kubeProxyVersion=settings.agent_version,
        operatingSystem=machine.operating_system,
        architecture=machine.architecture,
        swap=NodeSwapStatus(capacity=machine.swap_bytes) if machine.swap_bytes else None,
    )


def _runtime_version(facts: NodeFacts) -> str:
    """`containerd://2.1.9`; "" without a runtime, `remote://Unknown` before its first answer."""
    if facts.runtime.absent:
        return ""
    version = facts.runtime.version
    return f"{version.name}://{version.version}" if version else "remote://Unknown"


def _handlers(features: RuntimeFeatures) -> list[NodeRuntimeHandler] | None:
    """No handler has user namespaces: the agent refuses pods that ask for them."""
    listed = [
        NodeRuntimeHandler(
            name=name,
            features=NodeRuntimeHandlerFeatures(
                recursiveReadOnlyMounts=name in features.recursive_readonly,
                userNamespaces=name in features.user_namespaces,
            ),
        )
        for name in sorted(features.handlers)[:_MAX_HANDLERS]
    ]
    return listed or None


def _features(features: RuntimeFeatures) -> NodeFeatures:
    return NodeFeatures(supplementalGroupsPolicy=features.strict_groups)


def _images(images: tuple[ImageFacts, ...], limit: int) -> list[ContainerImage]:
    """The largest first, at most `limit` (-1: all)."""
    ordered = sorted(images, key=lambda image: (-image.size_bytes, image.names))
    kept = ordered if limit < 0 else ordered[:limit]
    return [
        ContainerImage(names=list(image.names[:NAMES_PER_IMAGE]), sizeBytes=image.size_bytes)
        for image in kept
    ]
