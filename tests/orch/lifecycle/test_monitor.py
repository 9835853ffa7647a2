"""The monitor against a fake API server: what it decides is done, if it can see enough to judge."""

import asyncio
import copy
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orch.client.events import EventRecorder
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.lifecycle.decide.records import RemoveOrphan, Settings, UpdateNode
from orch.lifecycle.metrics import LifecycleMetrics
from orch.lifecycle.monitor import Monitor, parted
from orch.wire.errors import ApiError
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Event, Node
from orch.wire.records.pods import Pod, PodCondition
from tests.fakes import cluster
from tests.fakes.api import FakeApi
from tests.fakes.apistore import Change

pytestmark = pytest.mark.looptime

NAMESPACE = "orch-node-lease"
REFUSED = TransportError("cannot reach https://api: connection refused")


class Monitored:
    """Nodes at a fake server, some of them renewing their Leases every ten seconds."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.telling = FakeApi(self.api.store)
        self.events = EventRecorder(self.telling, "node-controller", now=self.now)
        self.metrics = LifecycleMetrics()
        self.tasks: list[asyncio.Task[None]] = []
        self.beating: set[str] = set()
        self.beats = 0

    def start(self, *nodes: str) -> None:
        """Called in the test, whose clock jumps; fixtures live on the real one."""
        for name in nodes:
            self.api.store.put(cluster.node(name))
            self.api.store.put(cluster.lease(name))
        self.beating = set(nodes)
        self.tasks.append(loops.spawn(self.beat(), name="beat"))
        self.tasks.append(loops.spawn(self.events.run(), name="events"))
        self.monitor = self.new_monitor()

    def new_monitor(self) -> Monitor:
        monitor = Monitor(
            self.api, Settings(), self.events, self.metrics, identity="me", now=self.now
        )
        self.tasks.append(loops.spawn(monitor.run(), name="monitor"))
        return monitor

    async def beat(self) -> None:
        while True:
            self.beats += 1
            for name in self.beating:
                self.api.store.put(cluster.lease(name, str(self.beats)))
            await asyncio.sleep(10)

    def now(self) -> datetime:
        seconds = asyncio.get_running_loop().time()
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

    def ready(self, name: str) -> str:
        found: Node = self.api.store.peek(Node, name)
        return next((c.status for c in found.status.conditions or () if c.type == "Ready"), "")

    def taints(self, name: str) -> set[tuple[str, str]]:
        found: Node = self.api.store.peek(Node, name)
        return {(t.key, t.effect) for t in found.spec.taints or ()}

    def reasons(self) -> list[str]:
        return [event.reason or "" for event in self.api.store.all(Event)]

    def told(self) -> list[tuple[str | None, str | None, str | None]]:
        """Type and reason of each event, and the kind it is about."""
        events = self.api.store.all(Event)
        return [(event.type, event.reason, event.involvedObject.kind) for event in events]

    def metric(self, name: str) -> float | None:
        text = self.metrics.registry.render("")[0].decode()
        lines = (line for line in text.splitlines() if line.startswith(name))
        return next((float(line.rpartition(" ")[2]) for line in lines), None)


@pytest.fixture
async def watched() -> AsyncIterator[Monitored]:
    watched = Monitored()
    yield watched
    await loops.cancel(*watched.tasks)


async def test_a_silent_node_is_unknown_within_fifty_to_sixty_seconds_and_none_else(
    watched: Monitored,
) -> None:
    watched.start("n1", "n2", "n3")
    await asyncio.sleep(31)
    watched.beating.remove("n1")
    await asyncio.sleep(48)
    assert watched.ready("n1") == "True"
    await asyncio.sleep(12)
    assert [watched.ready(n) for n in ("n1", "n2", "n3")] == ["Unknown", "True", "True"]
    assert watched.taints("n1") == {
        ("node.orch.io/unreachable", "NoSchedule"),
        ("node.orch.io/unreachable", "NoExecute"),
    }
    assert "NodeNotReady" in watched.reasons()
    assert watched.metric("node_collector_evictions_total") == 1
    assert watched.metric("node_collector_unhealthy_nodes_in_zone") == 1


async def test_pods_that_will_not_run_get_an_event_each(watched: Monitored) -> None:
    watched.start("n1")
    await asyncio.sleep(1)
    for name, where in (("alone", ""), ("lost", "nowhere"), ("fine", "n1")):
        watched.api.store.put(cluster.pod(name, where, ready=False))
    await asyncio.sleep(30)
    told = [
        (event.involvedObject.name, event.type, (event.message or "").partition(":")[0])
        for event in watched.api.store.all(Event)
        if event.reason == "FailedScheduling"
    ]
    assert sorted(told) == [
        ("alone", "Warning", "nothing has given this pod a node"),
        ("lost", "Warning", 'node "nowhere" does not exist'),
    ]
    lost: Pod = watched.api.store.peek(Pod, "lost", "ns")
    (scheduled,) = [c for c in lost.status.conditions or () if c.type == "PodScheduled"]
    assert (scheduled.status, scheduled.reason) == ("False", "NodeNotFound")
    assert "does not exist" in (scheduled.message or "")


async def test_nothing_is_written_while_all_is_well(watched: Monitored) -> None:
    watched.start("n1", "n2")
    await asyncio.sleep(600)
    writes = [c for c in watched.api.calls if c.verb not in ("get", "list", "watch")]
    assert {(c.plural, c.key) for c in writes} == {
        ("leases", f"{NAMESPACE}/orch-controller-manager")
    }


async def test_a_server_that_was_away_is_no_reason_to_judge(
    watched: Monitored, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watched.start("n1", "n2")
    await asyncio.sleep(31)
    watched.api.fail(REFUSED, times=float("inf"))
    watched.beating.clear()
    await asyncio.sleep(600)
    watched.api.heal()
    await asyncio.sleep(15)
    watched.beating = {"n1", "n2"}
    await asyncio.sleep(60)
    assert watched.ready("n1") == watched.ready("n2") == "True"
    said = [r.getMessage() for r in caplog.records if r.name.endswith("monitor")]
    assert any(text.startswith("judging no node: this controller's own view has") for text in said)
    again = "the view is current again: every node gets its whole grace anew (after "
    assert said[-1].startswith(again)


async def test_a_watch_that_hangs_is_no_reason_to_judge(watched: Monitored) -> None:
    watched.start("n1", "n2")
    await asyncio.sleep(31)
    watched.api.hang(verb="watching", plural="leases")
    await asyncio.sleep(300)
    assert watched.ready("n1") == watched.ready("n2") == "True"
    watched.api.heal()
    await asyncio.sleep(120)
    assert watched.ready("n1") == watched.ready("n2") == "True"


async def test_a_restart_judges_nobody_for_a_grace_period(watched: Monitored) -> None:
    watched.start("n1", "n2")
    await asyncio.sleep(31)
    watched.beating.remove("n1")
    await asyncio.sleep(45)
    await loops.cancel(watched.tasks.pop())
    watched.new_monitor()
    await asyncio.sleep(48)
    assert watched.ready("n1") == "True"
    await asyncio.sleep(10)
    assert watched.ready("n1") == "Unknown"


async def test_an_agent_that_writes_in_between_wins(watched: Monitored) -> None:
    """The decision names the version it was made for."""
    watched.start("n1", "n2")
    await asyncio.sleep(31)
    watched.beating.remove("n1")
    watched.api.fail(ApiError(409, "Conflict", "modified"), verb="patch", plural="nodes")
    await asyncio.sleep(62)
    assert watched.ready("n1") == "Unknown", "the next decision repeats it"
    patch = watched.api.made("patch", "nodes")[0]
    assert patch.body["metadata"]["resourceVersion"] and patch.subresource == "status"


async def test_pods_of_a_silent_node_are_marked_then_evicted(watched: Monitored) -> None:
    watched.start("n1", "n2")
    placed = cluster.pod("p1", "n1")
    others = PodCondition(type="Initialized", status="True")
    placed.status.conditions = [others, *(placed.status.conditions or ())]
    watched.api.store.put(placed)
    await asyncio.sleep(31)
    watched.beating.remove("n1")
    await asyncio.sleep(60)
    pod: Pod = watched.api.store.peek(Pod, "p1", "ns")
    conditions = [(c.type, c.status) for c in pod.status.conditions or ()]
    assert conditions == [("Initialized", "True"), ("Ready", "False")]
    assert ("Warning", "NodeNotReady", "Pod") in watched.told()
    await asyncio.sleep(310)
    pod = watched.api.store.peek(Pod, "p1", "ns")
    assert pod.metadata.deletionTimestamp
    last = (pod.status.conditions or [])[-1]
    assert (last.type, last.status, last.reason) == (
        "DisruptionTarget",
        "True",
        "DeletionByTaintManager",
    )
    assert watched.reasons().count("TaintManagerEviction") == 1


async def test_what_a_deleted_node_leaves_is_removed(watched: Monitored) -> None:
    watched.start("n1", "n2")
    watched.api.store.put(cluster.pod("p1", "n1"))
    await asyncio.sleep(31)
    watched.beating.remove("n1")
    watched.api.store.remove(Node, "n1")
    await asyncio.sleep(60)
    assert watched.api.store.peek(Pod, "p1", "ns") is None
    assert watched.api.store.peek(Lease, "n1", NAMESPACE) is None
    assert watched.api.store.peek(Lease, "orch-controller-manager", NAMESPACE) is not None
    assert "RemovingNode" in watched.reasons()


async def test_thousands_of_pods_to_be_removed_keep_no_node_from_being_judged(
    watched: Monitored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may bind them to a node that does not exist: a round took as long as all of them,
    and after it every node had its whole grace period again.
    """
    delete = watched.api.delete

    async def slow(*arguments: Any, **named: Any) -> None:
        await asyncio.sleep(0.4)
        await delete(*arguments, **named)

    monkeypatch.setattr(watched.api, "delete", slow)
    watched.start("n1", "n2")
    for number in range(2000):
        watched.api.store.put(cluster.pod(f"p{number}", "nowhere"))
    await asyncio.sleep(31)
    watched.beating.remove("n1")
    await asyncio.sleep(61)
    assert watched.ready("n1") == "Unknown"
    assert len(watched.api.store.all(Pod)) > 500, "they are still being removed"
    await asyncio.sleep(60)
    assert watched.api.store.all(Pod) == []


def test_namespaces_take_turns_with_their_pods() -> None:
    node = UpdateNode(cluster.node("n1"))
    many = [RemoveOrphan(cluster.pod(f"p{number}", "nowhere")) for number in range(100)]
    other = cluster.pod("other", "nowhere")
    other.metadata.namespace = "elsewhere"
    others, pods = parted([*many, RemoveOrphan(other), node])
    assert others == [node]
    assert len(pods) == 101 and RemoveOrphan(other) in pods[:2]
    assert parted(many)[1] != parted(many)[1], "if some are refused, others have their turn"


async def test_a_node_the_view_misses_is_asked_for_before_its_pods_are_removed(
    watched: Monitored,
) -> None:
    watched.start("n1", "n2")
    watched.api.store.put(cluster.pod("p1", "n1"))
    await asyncio.sleep(31)
    store = watched.api.store
    store.version += 1  # a watch shows a deletion that never happened
    data = copy.deepcopy(store.data[Node, "n1"])
    data["metadata"]["resourceVersion"] = str(store.version)
    store.history.append(Change(store.version, "DELETED", Node, data))
    store.nudge()
    await asyncio.sleep(60)
    assert watched.api.store.peek(Pod, "p1", "ns") is not None


async def test_taints_are_removed_when_the_node_reports_again(watched: Monitored) -> None:
    watched.start("n1", "n2")
    await asyncio.sleep(31)
    watched.beating.remove("n1")
    await asyncio.sleep(60)
    back: Node = watched.api.store.peek(Node, "n1")
    back.status = cluster.node("n1", beat="again").status
    watched.api.store.put(back)
    await asyncio.sleep(6)
    assert watched.taints("n1") == set()
    assert watched.api.store.peek(Node, "n1").spec.taints is None


async def test_refusals_are_counted_said_once_and_outlived(
    watched: Monitored, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orch.lifecycle.monitor")
    watched.start("n1", "n2")
    await asyncio.sleep(31)
    watched.beating.remove("n1")
    watched.api.fail(ApiError(500, "InternalError", "no"), verb="patch", plural="nodes", times=3)
    await asyncio.sleep(80)
    assert watched.ready("n1") == "Unknown"
    assert watched.metric("node_collector_action_failures_total") == 3
    silent = "node n1 is silent: its conditions are now Unknown"
    assert ("orch.lifecycle.apply", logging.WARNING, silent) in caplog.record_tuples
    said = [text for name, _, text in caplog.record_tuples if name == "orch.lifecycle.monitor"]
    assert said[-2:] == [
        "1 of 2 actions failed and are decided again, the last one: update of node n1: no",
        "actions are carried out again (after 15.0 s)",
    ]
