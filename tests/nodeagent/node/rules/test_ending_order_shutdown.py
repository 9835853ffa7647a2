"""Who ends when: after the reference's nodeshutdown_manager_linux_test.go, groupByPriority."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.node.rules import ending_order
from nodeagent.node.rules.ending_order import Group, Member

SYSTEM = 2_000_000_000


def configured(
    total_s: float, critical_s: float, by_priority: list[tuple[int, int]]
) -> NodeAgentConfiguration:
    groups = [
        {"priority": priority, "shutdownGracePeriodSeconds": seconds}
        for priority, seconds in by_priority
    ]
    return NodeAgentConfiguration.model_validate(
        {
            "shutdownGracePeriod": f"{total_s}s",
            "shutdownGracePeriodCriticalPods": f"{critical_s}s",
            "shutdownGracePeriodByPodPriority": groups,
        }
    )


@pytest.mark.parametrize(
    ("total_s", "critical_s", "by_priority", "groups"),
    [
        (0, 0, [], ()),
        (30, 10, [], (Group(0, 20), Group(SYSTEM, 10))),
        (30, 0, [], (Group(0, 30), Group(SYSTEM, 0))),
        (0, 0, [(100, 5), (0, 60)], (Group(0, 60), Group(100, 5))),
    ],
)
def test_the_groups_of_the_configuration(
    total_s: float,
    critical_s: float,
    by_priority: list[tuple[int, int]],
    groups: tuple[Group, ...],
) -> None:
    assert ending_order.groups_of(configured(total_s, critical_s, by_priority)) == groups


@pytest.mark.parametrize(
    ("total_s", "critical_s", "by_priority", "told"),
    [
        (10, 20, [], r"shutdownGracePeriodCriticalPods \(20s\) must not exceed"),
        (10, 0, [(0, 1)], "shutdownGracePeriodByPodPriority excludes shutdownGracePeriod"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    total_s: float, critical_s: float, by_priority: list[tuple[int, int]], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        ending_order.groups_of(configured(total_s, critical_s, by_priority))


def test_groups_end_from_the_lowest_priority_to_the_highest() -> None:
    groups = [Group(SYSTEM, 10), Group(0, 20), Group(1000, 5)]
    members = [Member("s", SYSTEM + 7), Member("n"), Member("m", 999), Member("below", -4)]
    stages = ending_order.stages(groups, members)
    assert [(stage.seconds, [one.uid for one in stage.pods]) for stage in stages] == [
        (20, ["n", "m", "below"]),
        (10, ["s"]),
    ]


@given(
    st.lists(st.integers(-10, 10), min_size=1, unique=True),
    st.lists(st.integers(-20, 20), max_size=20),
)
def test_every_pod_ends_in_exactly_one_stage(groups: list[int], priorities: list[int]) -> None:
    members = [Member(str(n), priority) for n, priority in enumerate(priorities)]
    stages = ending_order.stages([Group(priority, 1) for priority in groups], members)
    ended = [one for stage in stages for one in stage.pods]
    assert sorted(one.uid for one in ended) == sorted(one.uid for one in members)
    above = [one.priority for one in ended if one.priority >= min(groups)]
    boundaries = [max((g for g in groups if g <= p), default=min(groups)) for p in above]
    assert boundaries == sorted(boundaries)
