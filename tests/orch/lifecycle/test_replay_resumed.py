"""A controller that is cut short anywhere and begun anew comes to the same end as one that was not.

Cut short: of one decision only the first actions are done, then everything it remembered is lost.
The same history goes on, and once the nodes' behaviour no longer changes both ends are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orch.lifecycle.decide.records import Memory
from tests.examples import examples
from tests.fakes.cluster import Cluster, node
from tests.orch.lifecycle.test_replay import NAMES
from tests.orch.lifecycle.test_replay_triggers import pods_on

TICK_S, SETTLED_S = 15.0, 900.0


@dataclass(frozen=True)
class Step:
    """For `ticks` ticks these renew; before, one reports `said`, or leaves or returns."""

    beating: frozenset[str]
    ticks: int
    one: str
    said: str


some = st.sampled_from(NAMES)
steps = st.builds(
    Step,
    beating=st.frozensets(some),
    ticks=st.integers(1, 12),
    one=some,
    said=st.sampled_from(["", "True", "False", "leaves"]),
)


def replay(history: list[Step], last: dict[str, str], cut_at: int | None, done: int) -> Cluster:
    """The cluster at rest after the history; `last` is how each node is for ever after it."""
    cluster = Cluster()
    for name in NAMES:
        _arrive(cluster, name)
    looked = 0
    for step in history:
        _happen(cluster, step)
        for _ in range(step.ticks):
            _tick(cluster, step.beating, done if looked == cut_at else None)
            looked += 1
    for name, said in last.items():
        if name not in cluster.nodes and said != "leaves":
            _arrive(cluster, name)
        if said in ("True", "False"):
            cluster.report(name, said)
        elif said == "leaves":
            cluster.nodes.pop(name, None)
    beating = frozenset(name for name, said in last.items() if said in ("True", "False"))
    for _ in range(int(SETTLED_S / TICK_S)):
        _tick(cluster, beating, None)
    assert cluster.look() == ()
    return cluster


def _arrive(cluster: Cluster, name: str) -> None:
    cluster.add(node(name, zone=name[0]), *pods_on(name))


def _happen(cluster: Cluster, step: Step) -> None:
    if step.said == "leaves":
        if step.one in cluster.nodes:
            del cluster.nodes[step.one]
        else:
            _arrive(cluster, step.one)
    elif step.said and step.one in cluster.nodes:
        cluster.report(step.one, step.said)


def _tick(cluster: Cluster, beating: frozenset[str], cut_after: int | None) -> None:
    cluster.now_s += TICK_S
    cluster.beat(*(name for name in beating if name in cluster.nodes))
    if cut_after is not None:
        cluster.apply(cluster.look()[:cut_after])
        cluster.memory = Memory()
    cluster.tick()


def end(cluster: Cluster, last: dict[str, str]) -> tuple[object, ...]:
    """All that does not depend on when something happened.

    A node that came back in time keeps its pods, and when it was late loses some: pods are compared
    where the end alone decides, on nodes that are silent or gone.
    """
    decided = {name for name, said in last.items() if said in ("silent", "leaves")}
    return (
        {name: (cluster.ready(name), cluster.taints(name)) for name in cluster.nodes},
        {p.metadata.name for p in cluster.pods.values() if p.spec.nodeName in decided},
        set(cluster.leases),
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    history=st.lists(steps, max_size=8),
    last=st.fixed_dictionaries(
        {name: st.sampled_from(["True", "False", "silent", "leaves"]) for name in NAMES}
    ).filter(lambda last: "True" in last.values()),
    cut_at=st.integers(0, 40),
    done=st.integers(0, 6),
)
def test_any_prefix_cut_short_and_resumed_comes_to_the_same_end(
    history: list[Step], last: dict[str, str], cut_at: int, done: int
) -> None:
    cut = cut_at % max(1, sum(step.ticks for step in history))
    whole = replay(history, last, None, 0)
    resumed = replay(history, last, cut, done)
    assert end(resumed, last) == end(whole, last)


def test_the_end_has_lost_the_pods_of_the_silent_and_the_gone() -> None:
    """What the law compares is not empty."""
    last = {"a1": "silent", "a2": "True", "a3": "leaves", "b1": "True"}
    cluster = replay([], last, None, 0)
    left = {p.metadata.name for p in cluster.pods.values() if p.spec.nodeName in ("a1", "a3")}
    assert left == {"forever-a1"} and cluster.ready("a1") == "Unknown"
    assert cluster.taints("a1") == {"unreachable:NoSchedule", "unreachable:NoExecute"}
    assert set(cluster.leases) == {"a1", "a2", "b1"}
