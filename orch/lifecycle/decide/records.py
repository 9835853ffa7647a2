"""The values of the node lifecycle decision: view and settings, memory, actions; frozen and pure.

Times ending in `_s` are seconds of the controller's own monotonic clock; wall-clock stamps appear
only inside the objects written to the API server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node, NodeCondition, Taint
from orch.wire.records.meta import ApiObject
from orch.wire.records.pods import Pod


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults of the reference controller; rates are nodes per second and zone."""

    period_s: float = 5.0
    grace_s: float = 50.0
    startup_grace_s: float = 60.0
    eviction_rate: float = 0.1
    secondary_eviction_rate: float = 0.01
    large_zone_size: int = 50
    unhealthy_zone_threshold: float = 0.55
    max_view_age_s: float = 15.0  # no node is judged by an older view
    orphan_quarantine_s: float = 40.0
    unbound_s: float = 10.0  # without a node, before that is told
    unbound_again_s: float = 1800.0  # until it is told again: events are kept for an hour


@dataclass(frozen=True, slots=True)
class Stamp:
    """One point in time: by the controller's own clock, and as written to the API server."""

    now_s: float
    now: str


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as the controller sees it at `stamp`.

    `age_s` is how old the view may be: any change before that has been seen.
    """

    nodes: Mapping[str, Node]
    leases: Mapping[str, Lease]  # by node name
    pods: Mapping[str, Sequence[Pod]]  # by node name
    stamp: Stamp
    age_s: float = 0.0
    unbound: Sequence[Pod] = ()  # pods without a node


@dataclass(frozen=True, slots=True)
class NodeMemory:
    """`sign` is the last sign of life: the heartbeat of Ready and the time of the Lease."""

    uid: str
    sign: tuple[str, str]
    alive_s: float  # when `sign` was last seen to change
    ready: str  # status of Ready when last looked at; "" before the first report
    not_ready_s: float  # when `ready` became something else than "True"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens of a zone: each allows one node to be tainted NoExecute."""

    tokens: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Timer:
    """A pod that tolerates its node's taints until `due_s`."""

    started_s: float
    due_s: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The state carried from one decision to the next; empty at startup."""

    looked_s: float | None = None  # when it last saw a fresh view
    blind: bool = False
    nodes: Mapping[str, NodeMemory] = field(default_factory=dict)
    buckets: Mapping[str, Bucket] = field(default_factory=dict)  # by zone
    disrupted: bool = False  # every zone is down: nothing is evicted
    unmarked: frozenset[str] = frozenset()  # uids of pods still to be marked not ready
    timers: Mapping[str, Timer] = field(default_factory=dict)  # by pod uid
    orphans: Mapping[str, float] = field(default_factory=dict)  # uid of pod or lease → first seen
    unbound: Mapping[str, float] = field(default_factory=dict)  # uid of pod → first seen


@dataclass(frozen=True, slots=True)
class Note:
    """An event to record; `obj` is the node or pod it is about."""

    obj: ApiObject
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class UpdateNode:
    """Write conditions (status) and taints (spec) of a node, if it has not changed since.

    None leaves that part as it is. `evicting` says that a NoExecute taint is new.
    """

    node: Node
    conditions: tuple[NodeCondition, ...] | None = None
    taints: tuple[Taint, ...] | None = None
    evicting: bool = False
    zone: str = ""


@dataclass(frozen=True, slots=True)
class MarkPodNotReady:
    """Set the pod's Ready condition to False; an event is recorded when that succeeded."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class MarkPodUnscheduled:
    """Say by event and condition why the pod has no node that it can run on."""

    pod: Pod
    message: str
    reason: str = "NodeNotFound"


@dataclass(frozen=True, slots=True)
class EvictPod:
    """Delete a pod because of its node's taints; it gets its grace period."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class RemoveOrphan:
    """Remove a pod immediately because its node no longer exists."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class RemoveLease:
    """Remove a Lease whose node no longer exists."""

    lease: Lease


Action = (
    Note | UpdateNode | MarkPodNotReady | MarkPodUnscheduled | EvictPod | RemoveOrphan | RemoveLease
)


@dataclass(frozen=True, slots=True)
class Decision:
    memory: Memory
    actions: tuple[Action, ...] = ()
