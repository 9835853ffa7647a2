"""Who is evicted first: the reference agent's order (pkg/kubelet/eviction/helpers_test.go)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.node.rules import ending_order, pressure
from nodeagent.node.rules.ending_order import INODES, MEMORY, PIDS, STORAGE, Candidate, ContainerUse
from nodeagent.node.rules.pressure import Amount, Observation, Threshold

MI = 1 << 20


def pod(
    uid: str, used: int = 0, asked: int = 0, *, priority: int = 0, static: bool = False
) -> Candidate:
    return Candidate(
        uid,
        priority,
        static,
        dict.fromkeys((MEMORY, STORAGE, INODES, PIDS), used),
        dict.fromkeys((MEMORY, STORAGE), asked),
    )


@pytest.mark.parametrize(
    ("resource", "candidates", "order"),
    [
        (MEMORY, [pod("within", 90, 100), pod("above", 20, 10)], ["above", "within"]),
        (MEMORY, [pod("best", 5), pod("guaranteed", 90, 100)], ["best", "guaranteed"]),
        (
            MEMORY,
            [pod("high", 50, 10, priority=100), pod("low", 20, 10, priority=1)],
            ["low", "high"],
        ),
        (MEMORY, [pod("within-low", 9, 10), pod("above-high", 11, 10, priority=9)],
         ["above-high", "within-low"]),
        (STORAGE, [pod("less", 20, 10), pod("most", 60, 40)], ["most", "less"]),
        (PIDS, [pod("few", 3), pod("many", 30), pod("most-dear", 99, priority=7)],
         ["many", "few", "most-dear"]),
        (INODES, [pod("few", 3), pod("many", 30)], ["many", "few"]),
        (MEMORY, [pod("static", 99, static=True), pod("system", 99, priority=2_000_000_000)], []),
        (MEMORY, [], []),
    ],
)  # fmt: skip
def test_the_order_of_eviction(
    resource: str, candidates: list[Candidate], order: list[str]
) -> None:
    assert [one.uid for one in ending_order.ranked(resource, candidates)] == order
    assert [one.uid for one in ending_order.ranked(resource, candidates[::-1])] == order


POD = st.builds(
    pod,
    st.text("abcdef", min_size=1, max_size=8),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    priority=st.integers(-5, 5),
    static=st.booleans(),
)


@given(st.lists(POD, max_size=12, unique_by=lambda one: one.uid))
def test_nobody_within_what_was_asked_for_goes_before_one_above_it(pods: list[Candidate]) -> None:
    order = ending_order.ranked(MEMORY, pods)
    above = [one.used[MEMORY] > one.requested[MEMORY] for one in order]
    assert above == sorted(above, reverse=True)
    assert {one.uid for one in order} == {one.uid for one in pods if not one.static}


@pytest.mark.parametrize(
    ("due", "urgent"),
    [
        ([], None),
        (["nodefs.available", "memory.available"], "memory.available"),
        (["pid.available", "imagefs.inodesFree"], "imagefs.inodesFree"),
        (["pid.available"], "pid.available"),
    ],
)
def test_memory_is_looked_after_first(due: list[str], urgent: str | None) -> None:
    found = ending_order.most_urgent([Threshold(signal, Amount(1)) for signal in due])
    assert (found and found.signal) == urgent


def test_a_hard_threshold_comes_before_a_soft_one_and_archives_evict_nobody() -> None:
    soft, hard = (Threshold("memory.available", Amount(1), grace_s=grace_s) for grace_s in (30, 0))
    assert ending_order.most_urgent([soft, hard]) is hard
    assert ending_order.most_urgent([pressure.CHECKPOINT_STORE]) is None


def test_the_message_names_what_was_short_and_who_took_more_than_it_asked_for() -> None:
    threshold = Threshold("memory.available", Amount(100 * MI))
    candidate = Candidate(
        "u",
        containers=(
            ContainerUse("greedy", {MEMORY: 300 * MI}, {MEMORY: 200 * MI}),
            ContainerUse("modest", {MEMORY: 10 * MI}, {MEMORY: 20 * MI}),
            ContainerUse("unknown"),
        ),
    )
    assert ending_order.message(threshold, Observation(90 * MI, 1000 * MI), candidate) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
        "Container greedy was using 300Mi, request is 200Mi, has larger consumption of memory."
    )
