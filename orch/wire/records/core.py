"""Core records: Node, Namespace, Event, and shared parts.

Pods are in `pods`. Shapes follow the core/v1 group as `kubectl` reads and writes it.
"""

from __future__ import annotations

from pydantic import Field

from orch.wire.names import EVENTS_GROUP
from orch.wire.records.meta import ApiObject, Int32, Quantity, Time, WireModel


class ObjectReference(WireModel):
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    apiVersion: str | None = None
    resourceVersion: str | None = None
    fieldPath: str | None = None


class Taint(WireModel):
    key: str
    value: str | None = None
    effect: str  # NoSchedule | PreferNoSchedule | NoExecute
    timeAdded: Time | None = None


class NodeCondition(WireModel):
    type: str
    status: str  # True | False | Unknown
    reason: str | None = None
    message: str | None = None
    lastHeartbeatTime: Time | None = None
    lastTransitionTime: Time | None = None


class NodeAddress(WireModel):
    type: str  # Hostname | InternalIP | ExternalIP | InternalDNS | ExternalDNS
    address: str


class DaemonEndpoint(WireModel):
    Port: Int32


class NodeDaemonEndpoints(WireModel):
    nodeagentEndpoint: DaemonEndpoint | None = None
    # kubectl and older clients read the port under this name
    kubeletEndpoint: DaemonEndpoint | None = None


class NodeSwapStatus(WireModel):
    capacity: int | None = None  # bytes


class NodeSystemInfo(WireModel):
    machineID: str = ""
    systemUUID: str = ""
    bootID: str = ""
    kernelVersion: str = ""
    osImage: str = ""
    containerRuntimeVersion: str = ""
    # The wire names of the reference clients; both carry the node agent's own version.
    kubeletVersion: str = ""
    kubeProxyVersion: str = ""
    operatingSystem: str = ""
    architecture: str = ""
    swap: NodeSwapStatus | None = None


class ContainerImage(WireModel):
    names: list[str] = Field(default_factory=list)
    sizeBytes: int | None = None


class NodeSpec(WireModel):
    podCIDR: str | None = None
    podCIDRs: list[str] | None = None
    providerID: str | None = None
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeRuntimeHandlerFeatures(WireModel):
    recursiveReadOnlyMounts: bool | None = None
    userNamespaces: bool | None = None


class NodeRuntimeHandler(WireModel):
    name: str = ""
    features: NodeRuntimeHandlerFeatures | None = None


class NodeFeatures(WireModel):
    supplementalGroupsPolicy: bool | None = None


class NodeStatus(WireModel):
    capacity: dict[str, Quantity] | None = None
    allocatable: dict[str, Quantity] | None = None
    conditions: list[NodeCondition] | None = None
    addresses: list[NodeAddress] | None = None
    daemonEndpoints: NodeDaemonEndpoints | None = None
    nodeInfo: NodeSystemInfo | None = None
    images: list[ContainerImage] | None = None
    declaredFeatures: list[str] | None = None
    runtimeHandlers: list[NodeRuntimeHandler] | None = None
    features: NodeFeatures | None = None


class Node(ApiObject):
    apiVersion: str = "v1"
    kind: str = "Node"
    spec: NodeSpec = Field(default_factory=NodeSpec)
    status: NodeStatus = Field(default_factory=NodeStatus)


class NamespaceSpec(WireModel):
    finalizers: list[str] | None = None


class NamespaceStatus(WireModel):
    phase: str | None = None


class Namespace(ApiObject):
    apiVersion: str = "v1"
    kind: str = "Namespace"
    spec: NamespaceSpec = Field(default_factory=NamespaceSpec)
    status: NamespaceStatus = Field(default_factory=NamespaceStatus)


class EventSource(WireModel):
    component: str | None = None
    host: str | None = None


class EventSeries(WireModel):
    count: Int32 | None = None
    lastObservedTime: Time | None = None


class Event(ApiObject):
    apiVersion: str = "v1"
    kind: str = "Event"
    involvedObject: ObjectReference = Field(default_factory=ObjectReference)
    reason: str | None = None
    message: str | None = None
    type: str | None = None  # Normal | Warning
    source: EventSource | None = None
    series: EventSeries | None = None
    related: ObjectReference | None = None
    count: Int32 | None = None
    firstTimestamp: Time | None = None
    lastTimestamp: Time | None = None
    eventTime: Time | None = None
    reportingComponent: str | None = None
    reportingInstance: str | None = None
    action: str | None = None


class EventReport(ApiObject):
    """An event in the words of its own group; the core group has the same events in others."""

    apiVersion: str = f"{EVENTS_GROUP}/v1"
    kind: str = "Event"
    regarding: ObjectReference = Field(default_factory=ObjectReference)
    related: ObjectReference | None = None
    reason: str | None = None
    note: str | None = None
    type: str | None = None  # Normal | Warning
    action: str | None = None
    eventTime: Time | None = None
    series: EventSeries | None = None
    reportingController: str | None = None
    reportingInstance: str | None = None
    deprecatedSource: EventSource | None = None
    deprecatedFirstTimestamp: Time | None = None
    deprecatedLastTimestamp: Time | None = None
    deprecatedCount: Int32 | None = None
