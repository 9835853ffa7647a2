"""Laws of the lifecycle decision over random histories: nodes beat, report, fall silent, come and
go; the controller restarts, goes blind and sleeps. A plain model of the trigger is kept beside it.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orch.lifecycle.decide.records import EvictPod, Memory, UpdateNode
from tests.examples import examples
from tests.fakes.cluster import Cluster, node, pod

NAMES = ["a1", "a2", "a3", "b1"]
GRACE_S, PERIOD_S = 50.0, 5.0
names = st.sampled_from(NAMES)


class History(RuleBasedStateMachine):
    """`heard_s` is when a node last gave a sign the controller could have seen, or was forgiven."""

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster()
        self.heard_s: dict[str, float] = {}
        self.said: dict[str, str] = {}  # what each agent last reported of Ready
        for name in NAMES:
            self.arrive(name)
        self.cluster.tick()
        self.forgive()

    def arrive(self, name: str) -> None:
        self.cluster.add(node(name, zone=name[0]), pod(f"pod-{name}", name))
        self.said[name] = "True"
        self.heard_s[name] = self.cluster.now_s

    def forgive(self) -> None:
        self.heard_s = dict.fromkeys(self.cluster.nodes, self.cluster.now_s)

    # --- what happens

    @rule(beating=st.sets(names), ticks=st.integers(1, 14))
    def time_passes(self, beating: set[str], ticks: int) -> None:
        """Some renew, some do not; every tick is judged against the model."""
        for _ in range(ticks):
            alive = [name for name in beating if name in self.cluster.nodes]
            self.cluster.now_s += PERIOD_S
            self.cluster.beat(*alive)
            for name in alive:
                self.heard_s[name] = self.cluster.now_s
            self.decide()

    def decide(self) -> None:
        disrupted = self.cluster.memory.disrupted
        before = {name: self.cluster.ready(name) for name in self.cluster.nodes}
        now_s = self.cluster.now_s
        due = {n for n in before if now_s - self.heard_s[n] > GRACE_S}
        actions = self.cluster.tick()
        for name, status in before.items():
            after = self.cluster.ready(name)
            if name in due:
                assert after == "Unknown", f"{name} is silent and not judged"
            else:
                assert after == status, f"{name} is alive and was judged"
        for action in actions:
            if isinstance(action, EvictPod):
                assert self.cluster.taints(action.pod.spec.nodeName or ""), "evicted without taint"
            if isinstance(action, UpdateNode) and action.evicting:
                assert self.cluster.ready(action.node.metadata.name) != "True"
        if disrupted and not self.cluster.memory.disrupted:
            self.forgive()

    @rule(name=names, ready=st.sampled_from(["True", "False"]))
    def an_agent_reports(self, name: str, ready: str) -> None:
        if name in self.cluster.nodes:
            self.cluster.report(name, ready)
            self.said[name] = ready
            self.heard_s[name] = self.cluster.now_s
            self.decide()

    @rule(name=names)
    def a_node_leaves_or_returns(self, name: str) -> None:
        if name in self.cluster.nodes:
            del self.cluster.nodes[name], self.heard_s[name]
        else:
            self.arrive(name)
        self.decide()

    @rule()
    def the_controller_restarts(self) -> None:
        self.cluster.memory = Memory()
        self.forgive()
        self.decide()

    @rule(seconds=st.integers(16, 500))
    def the_controller_sleeps(self, seconds: int) -> None:
        self.cluster.sleep(seconds)
        self.forgive()
        self.decide()

    @rule(ticks=st.integers(1, 30))
    def the_controller_is_blind(self, ticks: int) -> None:
        self.cluster.age_s = 16.0
        before = self.cluster.view()
        for _ in range(ticks):
            assert self.cluster.tick(PERIOD_S) == []
        self.cluster.age_s = 0.0
        assert self.cluster.view().nodes == before.nodes
        self.forgive()
        self.decide()

    # --- what always holds after a decision

    @invariant()
    def it_rests(self) -> None:
        assert self.cluster.look() == ()

    @invariant()
    def no_schedule_taints_mirror_ready(self) -> None:
        mirror = {"False": "not-ready:NoSchedule", "Unknown": "unreachable:NoSchedule", "True": ""}
        for name in self.cluster.nodes:
            found = {t for t in self.cluster.taints(name) if t.endswith(":NoSchedule")}
            assert found == {mirror[self.cluster.ready(name)]} - {""}

    @invariant()
    def no_execute_taints_are_right_where_they_are(self) -> None:
        right = {"False": "not-ready:NoExecute", "Unknown": "unreachable:NoExecute", "True": ""}
        down = all(self.cluster.ready(name) != "True" for name in self.cluster.nodes)
        for name in self.cluster.nodes:
            found = {t for t in self.cluster.taints(name) if t.endswith(":NoExecute")}
            assert found <= {right[self.cluster.ready(name)]}
            assert not (down and found), "evicting while everything is down"

    @invariant()
    def nothing_is_remembered_of_what_is_gone(self) -> None:
        memory = self.cluster.memory
        assert set(memory.nodes) == set(self.cluster.nodes)
        assert set(memory.timers) <= set(self.cluster.pods)


History.TestCase.settings = settings(
    max_examples=examples(60),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestHistory = pytest.mark.slow(pytest.mark.timeout(300)(History.TestCase))
