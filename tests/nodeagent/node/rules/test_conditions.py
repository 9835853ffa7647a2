"""Cases after pkg/kubelet/nodestatus/setters_test.go (upstream), with the neutral subject."""

import pytest

from nodeagent.node.rules import conditions
from nodeagent.node.rules.conditions import ConditionValue
from nodeagent.node.rules.facts import NodeFacts
from nodeagent.node.rules.pressure import Amount, PressureState, Threshold
from nodeagent.runtime.base import RuntimeCondition
from nodeagent.runtime.verdict import RuntimeHealth
from orch.wire.records.core import NodeCondition
from tests.fakes import node

AMOUNTS = {"cpu": 1, "memory": 1, "pods": 1, "ephemeral-storage": 1}
NO_CNI = (
    RuntimeCondition("RuntimeReady", True),
    RuntimeCondition("NetworkReady", False, "NetworkPluginNotReady", "no cni"),
)
NETWORK_TEXT = (
    "container runtime network not ready: NetworkReady=false "
    "reason:NetworkPluginNotReady message:no cni"
)


def judged(facts: NodeFacts, state: PressureState | None = None) -> tuple[ConditionValue, ...]:
    return conditions.node_conditions(facts, state or PressureState(), AMOUNTS, transition_s=300)


def test_a_healthy_node_says_so_with_ready_last() -> None:
    said = [(v.type, v.status, v.reason, v.message) for v in judged(node.facts())]
    assert said == [
        ("MemoryPressure", "False", "NodeAgentHasSufficientMemory",
         "nodeagent has sufficient memory available"),
        ("DiskPressure", "False", "NodeAgentHasNoDiskPressure", "nodeagent has no disk pressure"),
        ("PIDPressure", "False", "NodeAgentHasSufficientPID",
         "nodeagent has sufficient PID available"),
        ("NetworkUnavailable", "False", "NodeAgentNetworkReady",
         "the container runtime's network is ready"),
        ("Ready", "True", "NodeAgentReady", "nodeagent is posting ready status"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("signal", "kind", "reason", "message", "event"),
    [
        ("memory.available", "MemoryPressure", "NodeAgentHasInsufficientMemory",
         "nodeagent has insufficient memory available", "NodeHasInsufficientMemory"),
        ("nodefs.available", "DiskPressure", "NodeAgentHasDiskPressure",
         "nodeagent has disk pressure", "NodeHasDiskPressure"),
        ("pid.available", "PIDPressure", "NodeAgentHasInsufficientPID",
         "nodeagent has insufficient PID available", "NodeHasInsufficientPID"),
    ],
)  # fmt: skip
def test_pressure_is_reported_with_its_reason(
    signal: str, kind: str, reason: str, message: str, event: str
) -> None:
    state = PressureState({Threshold(signal, Amount(1)): 90.0}, {kind: 90.0})
    bad = [v for v in judged(node.facts(), state) if v.type != "Ready" and v.status == "True"]
    assert bad == [ConditionValue(kind, "True", reason, message, event)]


READY_CASES = {
    "the runtime": (
        {"runtime": node.runtime(last_good_s=60.0, error="refused")},
        "container runtime is down: refused",
    ),
    "no first check yet": (
        {"runtime": RuntimeHealth(since_s=99.0)},
        "container runtime status check may not have completed yet",
    ),
    "no runtime at all": (
        {"runtime": RuntimeHealth(absent="no container runtime is configured")},
        "no container runtime is configured",
    ),
    "its network": ({"runtime": node.runtime(conditions=NO_CNI)}, NETWORK_TEXT),
    "a shutdown": ({"problems": ("node is shutting down",)}, "node is shutting down"),
    "several at once": (
        {"runtime": node.runtime(conditions=NO_CNI), "problems": ("node is shutting down",)},
        f"[{NETWORK_TEXT}, node is shutting down]",
    ),
}


@pytest.mark.parametrize("case", READY_CASES)
def test_a_node_is_not_ready_because_of(case: str) -> None:
    changes, message = READY_CASES[case]
    ready = judged(node.facts(**changes))[-1]
    assert ready == ConditionValue("Ready", "False", "NodeAgentNotReady", message, "NodeNotReady")


def test_a_node_without_measured_capacity_is_not_ready() -> None:
    ready = conditions.ready_value(node.facts(), {"pods": 110})
    assert ready.message == ("missing node capacity for resources: cpu, memory, ephemeral-storage")


def test_the_network_follows_the_runtime_and_is_left_out_while_unknown() -> None:
    missing = conditions.network_value(node.facts(runtime=node.runtime(conditions=NO_CNI)))
    assert missing is not None
    assert (missing.status, missing.message) == ("True", NETWORK_TEXT)
    assert conditions.network_value(node.facts(runtime=RuntimeHealth())) is None


def test_the_transition_time_moves_only_with_the_status() -> None:
    values = judged(node.facts())
    first = conditions.stamped(values, None, "T1")
    assert {(c.lastHeartbeatTime, c.lastTransitionTime) for c in first} == {("T1", "T1")}
    down = judged(node.facts(problems=("node is shutting down",)))
    second = conditions.stamped(down, first, "T2")
    assert [(c.type, c.lastHeartbeatTime, c.lastTransitionTime) for c in second][-2:] == [
        ("NetworkUnavailable", "T2", "T1"),
        ("Ready", "T2", "T2"),
    ]


def test_conditions_of_others_are_kept() -> None:
    foreign = NodeCondition(type="KernelDeadlock", status="False", lastHeartbeatTime="T0")
    kept = conditions.stamped(judged(node.facts()), [foreign], "T1")
    assert kept[0] == foreign and kept[-1].type == "Ready"


def test_events_are_due_for_changes_for_first_pressure_reports_and_not_for_a_first_ready() -> None:
    values = judged(node.facts())
    assert [v.event for v in conditions.transitions(values, None)] == [
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
    ]
    before = conditions.stamped(values, None, "T1")
    assert conditions.transitions(values, before) == []
    down = judged(node.facts(problems=("node is shutting down",)))
    assert [v.event for v in conditions.transitions(down, before)] == ["NodeNotReady"]
