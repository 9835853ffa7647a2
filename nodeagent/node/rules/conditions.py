"""The conditions of the node: which are true, why, and since when; pure.

Reasons and messages are the reference agent's (pkg/kubelet/nodestatus/setters.go), with the neutral
subject. NetworkUnavailable comes from the runtime's NetworkReady. The order is memory, disk, PID,
network, and Ready last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nodeagent.node.rules import capacity, pressure
from nodeagent.node.rules.facts import NodeFacts
from nodeagent.node.rules.pressure import PressureState
from nodeagent.runtime import verdict
from orch.wire.records.core import NodeCondition

READY = "Ready"
NETWORK_UNAVAILABLE = "NetworkUnavailable"


@dataclass(frozen=True, slots=True)
class ConditionValue:
    """A condition without its times; `event` is the reason of the event its change makes."""

    type: str
    status: str  # True | False
    reason: str
    message: str
    event: str


_PRESSURES: Mapping[str, tuple[ConditionValue, ConditionValue]] = {
    kind: (
        ConditionValue(kind, "True", f"NodeAgent{bad}", f"nodeagent {bad_text}", f"Node{bad}"),
        ConditionValue(kind, "False", f"NodeAgent{good}", f"nodeagent {good_text}", f"Node{good}"),
    )
    for kind, bad, bad_text, good, good_text in (
        (
            pressure.MEMORY_PRESSURE,
            "HasInsufficientMemory",
            "has insufficient memory available",
            "HasSufficientMemory",
            "has sufficient memory available",
        ),
        (
            pressure.DISK_PRESSURE,
            "HasDiskPressure",
            "has disk pressure",
            "HasNoDiskPressure",
            "has no disk pressure",
        ),
        (
            pressure.PID_PRESSURE,
            "HasInsufficientPID",
            "has insufficient PID available",
            "HasSufficientPID",
            "has sufficient PID available",
        ),
    )
}


def judge(
    facts: NodeFacts,
    state: PressureState,
    amounts: Mapping[str, int],
    *,
    transition_s: float,
) -> tuple[ConditionValue, ...]:
    """Every condition the agent can speak for now; `amounts` is the node's capacity."""
    pressures = [
        bad if pressure.is_under(state, kind, facts.time_s, transition_s) else good
        for kind, (bad, good) in _PRESSURES.items()
    ]
    network = network_value(facts)
    return (*pressures, *([network] if network else []), ready_value(facts, amounts))


def ready_value(facts: NodeFacts, amounts: Mapping[str, int]) -> ConditionValue:
    """Ready, unless the runtime, its network, a missing capacity or a shutdown forbids it."""
    problems = [*verdict.runtime_problems(facts.runtime, facts.time_s), *facts.problems]
    missing = capacity.missing_resources(amounts)
    if missing:
        problems.append(f"missing node capacity for resources: {', '.join(missing)}")
    if not problems:
        return ConditionValue(
            READY, "True", "NodeAgentReady", "nodeagent is posting ready status", "NodeReady"
        )
    text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    return ConditionValue(READY, "False", "NodeAgentNotReady", text, "NodeNotReady")


def network_value(facts: NodeFacts) -> ConditionValue | None:
    """None while the runtime's word on its network is not known: then nothing is said of it."""
    network = verdict.network_condition(facts.runtime, facts.time_s)
    if network is None:
        return None
    if network.status:
        message = "the container runtime's network is ready"
        return _network("False", "NodeAgentNetworkReady", message, "NodeNetworkAvailable")
    message = f"container runtime network not ready: {verdict.describe(network)}"
    return _network("True", "NodeAgentNetworkNotReady", message, "NodeNetworkUnavailable")


def stamped(
    values: tuple[ConditionValue, ...], existing: list[NodeCondition] | None, now: str
) -> list[NodeCondition]:
    """The node's conditions with times; lastTransitionTime moves only when the status does.

    Conditions of other writers stay as they are, before those of the agent.
    """
    before = {condition.type: condition for condition in existing or ()}
    mine = {v.type for v in values}
    others = [condition for condition in before.values() if condition.type not in mine]
    return [*others, *(_stamped(v, before.get(v.type), now) for v in values)]


def transitions(
    values: tuple[ConditionValue, ...], existing: list[NodeCondition] | None
) -> list[ConditionValue]:
    """Those that changed their status: each is worth an event.

    A first pressure report counts, a first Ready does not.
    """
    before = {condition.type: condition.status for condition in existing or ()}
    return [
        v
        for v in values
        if before.get(v.type) != v.status and (v.type in before or v.type in _PRESSURES)
    ]


def find(conditions: list[NodeCondition] | None, kind: str) -> NodeCondition | None:
    return next((c for c in conditions or () if c.type == kind), None)


def _network(status: str, reason: str, message: str, event: str) -> ConditionValue:
    return ConditionValue(NETWORK_UNAVAILABLE, status, reason, message, event)


def _stamped(v: ConditionValue, before: NodeCondition | None, now: str) -> NodeCondition:
    kept = before is not None and before.status == v.status
    since = before.lastTransitionTime if before is not None and kept else now
    return NodeCondition(
        type=v.type,
        status=v.status,
        reason=v.reason,
        message=v.message,
        lastHeartbeatTime=now,
        lastTransitionTime=since or now,
    )
