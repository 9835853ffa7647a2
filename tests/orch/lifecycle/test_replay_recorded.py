"""The lifecycle decision over recorded histories: what real controllers were shown, look by look.

`recording` makes them. Each decision is judged by `triggermodel`: nothing more, nothing less. And
the same happenings, with a controller that is cut short anywhere, come to the same end.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orch.lifecycle.decide.decision import decide
from orch.lifecycle.decide.records import Decision, Memory, Settings, UpdateNode, View
from orch.wire.records.core import Node, NodeCondition, Taint
from tests.examples import examples
from tests.fakes.cluster import Cluster
from tests.orch.lifecycle import histories, recording
from tests.orch.lifecycle.histories import Look
from tests.orch.lifecycle.test_replay_resumed import end
from tests.orch.lifecycle.triggermodel import KEYS, Model, words

pytestmark = pytest.mark.slow

STALE_S, GRACE_S, STARTUP_S = 15.0, 50.0, 60.0
BY_CONTROLLER = ("NodeStatusUnknown", "NodeStatusNeverUpdated")
TICK_S, SETTLED_S = 15.0, 900.0
RENEWING_S = 25.0  # a node that said nothing for longer is taken for silent at the end

# Which words each history must have brought, so that it is about what its name says.
ABOUT = {
    "silent": ("judge", "evict zone", "evict brief", "evict default", "mark", "NodeNotReady"),
    "unsteady": ("NodeNotReady", "mark"),
    "restart": ("judge", "evict zone"),
    "leaders": ("judge", "evict zone"),
    "outage": ("judge", "evict zone"),
    "zone": ("judge", "evict zone", "TaintManagerEviction", "evict brief"),
    "blackout": ("judge",),
    "deletion": ("RemovingNode", "RegisteredNode", "remove"),
    "never": ("judge d-00000",),
}


@cache
def recorded(name: str) -> tuple[Settings, list[Look]]:
    return histories.read(histories.FOLDER / f"{name}.jsonl")


def ready_of(node: Node) -> NodeCondition | None:
    return next((c for c in node.status.conditions or () if c.type == "Ready"), None)


def said_of(node: Node) -> NodeCondition | None:
    """What the agent itself said of Ready, if that is still there to be seen."""
    ready = ready_of(node)
    return ready if ready and ready.reason not in BY_CONTROLLER else None


class Ear:
    """When each node was last heard, by the controller's own clock."""

    def __init__(self) -> None:
        self._signs: dict[str, tuple[str | None, ...]] = {}
        self._heard_s: dict[str, float] = {}

    def listen(self, view: View) -> set[str]:
        """Who has been silent for too long."""
        silent = set()
        for name, node in view.nodes.items():
            sign = self._sign(name, node, view)
            if self._signs.get(name) != sign:
                self._signs[name], self._heard_s[name] = sign, view.stamp.now_s
            grace_s = GRACE_S if ready_of(node) else STARTUP_S
            if view.stamp.now_s - self._heard_s[name] > grace_s:
                silent.add(name)
        for name in set(self._signs) - set(view.nodes):
            del self._signs[name], self._heard_s[name]
        return silent

    def forgive(self, now_s: float) -> None:
        self._heard_s = dict.fromkeys(self._heard_s, now_s)

    def _sign(self, name: str, node: Node, view: View) -> tuple[str | None, ...]:
        uid, beat, renewed = self._signs.get(name, (node.metadata.uid, None, None))
        if uid != node.metadata.uid:
            beat = renewed = None
        if said := said_of(node):
            beat = said.lastHeartbeatTime
        lease = view.leases.get(name)
        return node.metadata.uid, beat, lease.spec.renewTime if lease else renewed


class Judged:
    """The decisions on one history, each against the model."""

    def __init__(self, settings: Settings) -> None:
        self.seen: Counter[str] = Counter()
        self.blind_looks = 0
        self._settings = settings
        self._begin()

    def _begin(self) -> None:
        self._memory, self._model, self._ear = Memory(), Model(), Ear()
        self._last_s: float | None = None
        self._blind = self._all_down = False

    def look(self, look: Look) -> None:
        if look.begins:
            self._begin()
        view, now_s = look.view, look.view.stamp.now_s
        decision = decide(self._memory, view, self._settings)
        self._memory = decision.memory
        if view.age_s > STALE_S:
            assert decision.actions == (), "judged what it cannot see"
            self._blind = True
            self.blind_looks += 1
            return
        slept = self._last_s is not None and now_s - self._last_s > STALE_S
        if self._blind or slept:
            self._ear.forgive(now_s)
        self._blind, self._last_s = False, now_s
        self._compare(view, decision)

    def _compare(self, view: View, decision: Decision) -> None:
        world, silent = shown(view), self._ear.listen(view)
        expected = self._model.expect(world, silent)
        done = Counter(word for action in decision.actions for word in words(action))
        assert done == expected, f"at {view.stamp.now_s} s"
        self.seen += done
        updates = {a.node.metadata.name: a for a in decision.actions if isinstance(a, UpdateNode)}
        ready = {n: "Unknown" if n in silent else world.ready(n) for n in world.nodes}
        for name, node in view.nodes.items():
            update = updates.get(name)
            wanted = update.taints if update and update.taints is not None else node.spec.taints
            self._check_taints(wanted or (), ready[name])
        all_down = bool(ready) and all(status != "True" for status in ready.values())
        if self._all_down and not all_down:
            self._ear.forgive(view.stamp.now_s)
        self._all_down = all_down

    def _check_taints(self, taints: object, ready: str) -> None:
        assert isinstance(taints, list | tuple)
        keys = {"NoSchedule": set(), "NoExecute": set()}  # type: dict[str, set[str]]
        for taint in taints:
            assert isinstance(taint, Taint)
            keys[taint.effect].add(taint.key.rpartition("/")[2])
        right = {KEYS[ready]} if ready in KEYS else set()
        assert keys["NoSchedule"] == right and keys["NoExecute"] <= right


def shown(view: View, settings: Settings | None = None) -> Cluster:
    """The view as a cluster."""
    cluster = Cluster(settings=settings)
    cluster.nodes, cluster.leases = dict(view.nodes), dict(view.leases)
    cluster.pods = {p.metadata.uid or "": p for some in view.pods.values() for p in some}
    cluster.now_s = view.stamp.now_s
    return cluster


def test_every_scenario_is_recorded() -> None:
    assert {path.stem for path in histories.FOLDER.glob("*.jsonl")} == set(recording.SCENARIOS)


@pytest.mark.parametrize("name", ABOUT)
def test_every_recorded_decision_is_what_the_table_says(name: str) -> None:
    settings, looks = recorded(name)
    judged = Judged(settings)
    for look in looks:
        judged.look(look)
    for word in ABOUT[name]:
        assert any(seen.startswith(word) for seen in judged.seen), f"{word}: {judged.seen}"
    assert sum(look.begins for look in looks) == {"restart": 2, "leaders": 3}.get(name, 1)
    assert (judged.blind_looks > 0) == (name == "outage")


class Replayed:
    """What agents and users did in a history, on a cluster whose controller may be cut short."""

    def __init__(self, settings: Settings) -> None:
        self.cluster = Cluster(settings=settings)
        self._said: dict[str, NodeCondition | None] = {}
        self._ready: set[str] = set()  # pods that were seen ready, by uid
        self._heard_s: dict[str, float] = {}

    def run(self, looks: list[Look], cut_at: int | None, done: int) -> None:
        for number, look in enumerate(looks):
            self._happen(look.view)
            self.cluster.now_s, self.cluster.age_s = look.view.stamp.now_s, look.view.age_s
            if look.begins:
                self.cluster.memory = Memory()
            if number == cut_at:
                self.cluster.apply(self.cluster.look()[:done])
                self.cluster.memory = Memory()
            self.cluster.tick()
        self.cluster.age_s = 0.0

    def settle(self) -> dict[str, str]:
        """How each node is for ever after: by name, what it says, `silent` or `leaves`."""
        began_s = self.cluster.now_s
        last = dict.fromkeys(self._heard_s, "leaves")
        for name in self.cluster.nodes:
            beats = began_s - self._heard_s[name] < RENEWING_S
            said = self._said[name]
            last[name] = said.status if beats and said else "silent"
        beating = [name for name, how in last.items() if how in KEYS or how == "True"]
        for name in beating:
            self.cluster.report(name, last[name])
        while self.cluster.now_s < began_s + SETTLED_S:
            self.cluster.tick(TICK_S, beating=beating)
        assert self.cluster.look() == ()
        return last

    def _happen(self, view: View) -> None:
        cluster = self.cluster
        for name in set(cluster.nodes) - set(view.nodes):
            del cluster.nodes[name]
        for name, node in view.nodes.items():
            self._node(name, node, view)
        for name, lease in view.leases.items():
            if (old := cluster.leases.get(name)) is None or old.spec != lease.spec:
                cluster.leases[name] = lease
                self._heard_s[name] = view.stamp.now_s
        for name in set(cluster.leases) - set(view.leases):
            del cluster.leases[name]  # the API server collects what deleted nodes own
        self._pods(view)

    def _node(self, name: str, node: Node, view: View) -> None:
        there, said = self.cluster.nodes.get(name), said_of(node)
        if there is None or there.metadata.uid != node.metadata.uid:
            there = node.model_copy(deep=True)
            there.spec.taints = None
            self._heard_s[name] = view.stamp.now_s
        update: dict[str, object] = {"metadata": node.metadata}
        if said and said != self._said.get(name):
            update["status"] = node.status
        self._said[name] = said or self._said.get(name)
        self.cluster.nodes[name] = there.model_copy(update=update)

    def _pods(self, view: View) -> None:
        """Placed, and made ready, by a user; whatever else became of them the controller did."""
        for pod in (pod for some in view.pods.values() for pod in some):
            uid = pod.metadata.uid or ""
            is_ready = any(c.status == "True" for c in pod.status.conditions or ())
            if uid not in self._ready and (is_ready or uid not in self.cluster.pods):
                self.cluster.pods[uid] = pod
            if is_ready:
                self._ready.add(uid)


@cache
def whole(name: str) -> tuple[dict[str, str], tuple[object, ...]]:
    """How each node is at the end, and the end."""
    settings, looks = recorded(name)
    replayed = Replayed(settings)
    replayed.run(looks, None, 0)
    last = replayed.settle()
    return last, end(replayed.cluster, last)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ABOUT)
@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cut=st.integers(0, 10_000), done=st.integers(0, 6))
def test_any_prefix_of_it_cut_short_and_resumed_comes_to_the_same_end(
    name: str, cut: int, done: int
) -> None:
    settings, looks = recorded(name)
    replayed = Replayed(settings)
    replayed.run(looks, cut % len(looks), done)
    last, expected = whole(name)
    assert replayed.settle() == last
    assert end(replayed.cluster, last) == expected
