"""The conditions of the node: which are true, why, and since when; pure.

Reasons and messages are the reference agent's (pkg/kubelet/nodestatus/setters.go), with the neutral
subject. NetworkUnavailable comes from the runtime's NetworkReady. The order is memory, disk, PID,
network, and Ready last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nodeagent.node.rules import capacity, contention, pressure
from nodeagent.node.rules.facts import NodeFacts
from nodeagent.node.rules.pressure import PressureState
from nodeagent.runtime import verdict
from orch.wire.records.core import NodeCondition

READY = "Ready"
NETWORK_UNAVAILABLE = "NetworkUnavailable"


@dataclass(frozen=True, slots=True)
class ConditionValue:
    """A condition without its times; `event` is the reason of the event at its change."""

    type: str
    status: str  # True | False
    reason: str
    message: str
    event: str


def _pressure(kind: str, status: str, reason: str, text: str) -> ConditionValue:
    return ConditionValue(kind, status, f"NodeAgent{reason}", f"nodeagent {text}", f"Node{reason}")


# Under pressure, and not.
_PRESSURES = {
    kind: (_pressure(kind, "True", *bad), _pressure(kind, "False", *good))
    for kind, bad, good in (
        (
            pressure.MEMORY_PRESSURE,
            ("HasInsufficientMemory", "has insufficient memory available"),
            ("HasSufficientMemory", "has sufficient memory available"),
        ),
        (
            pressure.DISK_PRESSURE,
            ("HasDiskPressure", "has disk pressure"),
            ("HasNoDiskPressure", "has no disk pressure"),
        ),
        (
            pressure.PID_PRESSURE,
            ("HasInsufficientPID", "has insufficient PID available"),
            ("HasSufficientPID", "has sufficient PID available"),
        ),
    )
}


def node_conditions(
    facts: NodeFacts,
    state: PressureState,
    amounts: Mapping[str, int],
    *,
    transition_s: float,
    watched: Collection[str] = (),
) -> tuple[ConditionValue, ...]:
    """Every condition that the agent knows now; `amounts` is the node's capacity.

    `watched` are those from stalls that are reported where the kernel measures them.
    """
    pressures = [
        bad if pressure.is_under(state, kind, facts.time_s, transition_s) else good
        for kind, (bad, good) in _PRESSURES.items()
    ]
    contended = [
        _contended(kind, is_on=kind in state.contended)
        for kind in contention.KINDS
        if kind in watched and kind in facts.usage.stalls
    ]
    network = network_value(facts)
    return (*pressures, *contended, *([network] if network else []), ready_value(facts, amounts))


def _contended(kind: str, *, is_on: bool) -> ConditionValue:
    if is_on:
        return _pressure(kind, "True", f"Has{kind}", f"has {kind}")
    return _pressure(kind, "False", f"HasNo{kind}", f"has no {kind}")


def ready_value(facts: NodeFacts, amounts: Mapping[str, int]) -> ConditionValue:
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
    """None, which leaves the condition out, while the state of the runtime's network is unknown."""
    network = verdict.network_condition(facts.runtime, facts.time_s)
    if network is None:
        return None
    if network.status:
        message = "the container runtime's network is ready"
        status, reason, event = "False", "NodeAgentNetworkReady", "NodeNetworkAvailable"
    else:
        message = f"container runtime network not ready: {verdict.describe(network)}"
        status, reason, event = "True", "NodeAgentNetworkNotReady", "NodeNetworkUnavailable"
    return ConditionValue(NETWORK_UNAVAILABLE, status, reason, message, event)


def stamped(
    values: tuple[ConditionValue, ...], existing: list[NodeCondition] | None, now: str
) -> list[NodeCondition]:
    """The node's conditions with times; lastTransitionTime changes only with the status.

    Conditions of other writers come first, unchanged; those from stalls go with their gate.
    """
    before = {condition.type: condition for condition in existing or ()}
    own = {*contention.KINDS, *(v.type for v in values)}
    others = [condition for condition in before.values() if condition.type not in own]
    return [*others, *(_stamped(v, before.get(v.type), now) for v in values)]


def transitions(
    values: tuple[ConditionValue, ...], existing: list[NodeCondition] | None
) -> list[ConditionValue]:
    """Those to record an event for: a changed status, or the first report of a pressure."""
    before = {condition.type: condition.status for condition in existing or ()}
    return [
        v
        for v in values
        if before.get(v.type) != v.status and (v.type in before or v.type in _PRESSURES)
    ]


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
