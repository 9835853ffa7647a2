"""Conditions from stalls: set by both averages, cleared by the minute's, and not by a limit."""

from __future__ import annotations

import pytest

from nodeagent.node.rules import conditions, contention
from nodeagent.node.rules.contention import (
    KINDS,
    PODS_MEMORY,
    SYSTEM_DISK,
    SYSTEM_MEMORY,
    StallShare,
)
from nodeagent.node.rules.pressure import PressureState
from nodeagent.psi import Pressure, PressureLine
from nodeagent.stats.samples import (
    CgroupSample,
    ContainerSample,
    CpuSample,
    Limits,
    MemorySample,
    NodeSample,
    PodSample,
    Sample,
    SystemSample,
)
from orch.wire.records.core import NodeCondition
from tests.fakes import hosts, node

THRESHOLDS = {SYSTEM_MEMORY: 10.0}
AMOUNTS = {"cpu": 1, "memory": 1, "pods": 1, "ephemeral-storage": 1}


@pytest.mark.parametrize(
    ("was", "avg10", "avg60", "is_on"),
    [
        (False, 50.0, 9.9, False),  # a moment
        (False, 9.9, 50.0, False),  # already easing
        (False, 10.0, 10.0, True),
        (True, 0.0, 10.0, True),  # the minute decides
        (True, 50.0, 9.9, False),
    ],
)
def test_both_averages_set_it_and_the_minute_clears_it(
    was: bool, avg10: float, avg60: float, is_on: bool
) -> None:
    before = frozenset({SYSTEM_MEMORY}) if was else frozenset[str]()
    after = contention.step(before, {SYSTEM_MEMORY: StallShare(avg10, avg60)}, THRESHOLDS)
    assert (SYSTEM_MEMORY in after) is is_on


def test_what_is_not_measured_or_has_no_threshold_is_not_true() -> None:
    assert contention.step(frozenset(KINDS), {}, THRESHOLDS) == frozenset()
    assert (
        contention.step(frozenset(), {SYSTEM_DISK: StallShare(99, 99)}, THRESHOLDS) == frozenset()
    )


def stalled(percent: float, **more: object) -> CgroupSample:
    line = PressureLine(percent, percent, percent, 1)
    pressure = Pressure(line, line)
    return CgroupSample(1, memory_pressure=pressure, **more)  # type: ignore[arg-type]


def sample(machine: CgroupSample, *containers: CgroupSample) -> Sample:
    pods = (SystemSample("pods", 0, machine),)
    found = tuple(ContainerSample(hosts.CONTAINER, cgroup) for cgroup in containers)
    return Sample(1, NodeSample(machine, system=pods), (PodSample(hosts.POD, containers=found),))


def test_a_container_at_its_own_memory_limit_is_not_the_machine_s_stall() -> None:
    full = MemorySample(usage_bytes=100)
    own = stalled(40.0, memory=full, limits=Limits(memory_bytes=100))
    free = stalled(40.0, memory=full, limits=Limits(memory_bytes=1000))
    assert contention.stalls(sample(stalled(40.0), own))[SYSTEM_MEMORY] == StallShare(0.0, 0.0)
    assert contention.stalls(sample(stalled(45.0), own))[PODS_MEMORY] == StallShare(5.0, 5.0)
    assert contention.stalls(sample(stalled(40.0), free))[PODS_MEMORY] == StallShare(40.0, 40.0)


def test_a_throttled_pod_sets_no_condition() -> None:
    """All its stalls are those of its processors, which have no condition."""
    line = PressureLine(99.0, 99.0, 99.0, 1)
    capped = CgroupSample(
        1, cpu=CpuSample(1, throttled_nsec=10**12), cpu_pressure=Pressure(line, line)
    )
    machine = stalled(0.0)._replace(cpu_pressure=Pressure(line, None))
    seen = contention.stalls(sample(machine, capped))
    assert contention.step(frozenset(), seen, dict.fromkeys(KINDS, 1.0)) == frozenset()


def said(watched: tuple[str, ...], contended: frozenset[str]) -> dict[str, str]:
    facts = node.facts(usage=node.usage(stalls={SYSTEM_MEMORY: StallShare(50, 50)}))
    state = PressureState(contended=contended)
    values = conditions.node_conditions(facts, state, AMOUNTS, transition_s=0, watched=watched)
    return {v.type: f"{v.status} {v.reason}" for v in values if v.type in KINDS}


def test_a_watched_condition_is_reported_where_it_is_measured() -> None:
    on, off = frozenset({SYSTEM_MEMORY}), frozenset[str]()
    assert said(KINDS, on) == {SYSTEM_MEMORY: "True NodeAgentHasSystemMemoryContentionPressure"}
    assert said(KINDS, off) == {SYSTEM_MEMORY: "False NodeAgentHasNoSystemMemoryContentionPressure"}
    assert said((), on) == {}


def test_a_condition_goes_with_its_gate() -> None:
    left = [NodeCondition(type=kind, status="True") for kind in (SYSTEM_MEMORY, "Own")]
    assert [c.type for c in conditions.stamped((), left, "now")] == ["Own"]
