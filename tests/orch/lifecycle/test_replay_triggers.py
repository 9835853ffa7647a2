"""Every action of the lifecycle decision has its stated trigger, and every trigger its action.

The table of docs/heartbeats.md is written down a second time in `triggermodel`, and compared with
each single decision of a random history: nothing more, nothing less.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, rule

from orch.lifecycle.decide.records import Memory
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod, Toleration
from tests.examples import examples
from tests.fakes.cluster import pod
from tests.orch.lifecycle.test_replay import GRACE_S, History, names
from tests.orch.lifecycle.triggermodel import KEYS, Model, words


def pods_on(name: str) -> list[Pod]:
    """One for each way of tolerating; `forever` is never evicted."""
    ways = {"brief": [30], "never": [0], "forever": [None], "default": []}
    return [
        pod(
            f"{way}-{name}",
            name,
            tolerations=[Toleration(operator="Exists", tolerationSeconds=s) for s in seconds],
        )
        for way, seconds in ways.items()
    ]


class Triggers(History):
    """The same histories, and nodes that are cordoned; each decision against the model."""

    model: Model

    def arrive(self, name: str) -> None:
        if not self.heard_s and not hasattr(self, "model"):
            self.model = Model()
        super().arrive(name)
        del self.cluster.pods[f"uid-pod-{name}"]
        self.cluster.add(*pods_on(name))

    def forgive(self) -> None:
        if self.cluster.memory.looked_s is not None and self.model.shown is None:
            self.model.expect(self.cluster, set())  # the first look, before the history
        super().forgive()

    @rule()
    def the_controller_restarts(self) -> None:
        self.cluster.memory = Memory()
        self.forgive_after_restart()
        self.decide()

    def forgive_after_restart(self) -> None:
        self.model = Model()
        super().forgive()

    @rule(name=names)
    def a_node_is_cordoned_or_not(self, name: str) -> None:
        if name in self.cluster.nodes:
            node = self.cluster.nodes[name]
            spec = node.spec.model_copy(
                update={"unschedulable": None if node.spec.unschedulable else True}
            )
            self.cluster.nodes[name] = node.model_copy(update={"spec": spec})
            self.decide()

    def decide(self) -> None:
        for _ in range(4):
            disrupted = self.cluster.memory.disrupted
            now_s = self.cluster.now_s
            silent = {n for n in self.cluster.nodes if now_s - self.heard_s[n] > GRACE_S}
            expected = self.model.expect(self.cluster, silent)
            actions = self.cluster.look()
            assert Counter(word for action in actions for word in words(action)) == expected
            self.cluster.apply(actions)
            if disrupted and not self.cluster.memory.disrupted:
                super().forgive()
            if not actions:
                return
        raise AssertionError(f"the controller does not come to rest: {actions}")

    @invariant()
    def no_schedule_taints_mirror_ready(self) -> None:
        for name, node in self.cluster.nodes.items():
            found = {t for t in self.cluster.taints(name) if t.endswith(":NoSchedule")}
            assert found == {f"{word}:NoSchedule" for word in self._mirrored(name, node)}

    def _mirrored(self, name: str, node: Node) -> set[str]:
        cordoned = {"unschedulable"} if node.spec.unschedulable else set()
        return cordoned | {KEYS.get(self.cluster.ready(name), "")} - {""}


Triggers.TestCase.settings = settings(
    max_examples=examples(60),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestTriggers = pytest.mark.slow(pytest.mark.timeout(300)(Triggers.TestCase))
