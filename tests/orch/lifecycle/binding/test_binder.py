"""The binder against a fake API server: who gets which node, who is told what, and at what cost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from orch.client.events import EventRecorder
from orch.client.informer import Informer
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.lifecycle.apply import Applier
from orch.lifecycle.binding import binder as module
from orch.lifecycle.binding import placement
from orch.lifecycle.binding.binder import Binder
from orch.lifecycle.binding.ledger import Cluster
from orch.lifecycle.metrics import LifecycleMetrics
from orch.wire.errors import ApiError, Cause
from orch.wire.names import CAUSE_NODE_FULL
from orch.wire.records.core import Event, Node
from orch.wire.records.pods import Pod, PodCondition
from tests.attacks.witness import slowness, yardstick_ms
from tests.fakes.api import FakeApi


def node(name: str, cpu: str = "2", pods: str = "110", **spec: Any) -> Node:
    status = {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": pods}}
    return Node.from_wire({"metadata": {"name": name}, "spec": spec, "status": status})


def pod(key: str, cpu: str = "100m", **spec: Any) -> Pod:
    namespace, _, name = key.rpartition("/")
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    metadata = {"name": name, "namespace": namespace or "default"}
    return Pod.from_wire({"metadata": metadata, "spec": {"containers": containers, **spec}})


class World:
    """A fake server, and the binders of one or more terms with informers of their own."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.metrics = LifecycleMetrics()
        self.tasks: list[asyncio.Task[None]] = []

    async def lead(self) -> asyncio.Task[None]:
        """Begin a term; what is given is cancelled to end it."""
        changed = asyncio.Event()
        nodes = Informer(self.api, Node, on_change=changed.set)
        pods = Informer(self.api, Pod, on_change=changed.set)
        events = EventRecorder(FakeApi(self.api.store), placement.OWN_SCHEDULER, now=now)
        for informer in (nodes, pods):
            self.tasks.append(loops.spawn(informer.run(), name=informer.plural))
            await informer.wait_synced()
        self.tasks.append(loops.spawn(events.run(), name="events"))
        binder = Binder(
            self.api,
            Applier(self.api, events, self.metrics, now=now),
            self.metrics.binding,
            lambda: Cluster(dict(nodes.objects()), dict(pods.objects())),
            changed=changed,
        )
        term = loops.spawn(binder.run(), name="binder")
        self.tasks.append(term)
        return term

    def pod(self, name: str, namespace: str = "default") -> Pod:
        found: Pod = self.api.store.peek(Pod, name, namespace)
        return found

    def scheduled(self, name: str) -> PodCondition | None:
        conditions = self.pod(name).status.conditions or ()
        return next((c for c in conditions if c.type == "PodScheduled"), None)

    def nodes_of(self, namespace: str = "default") -> dict[str, str]:
        pods: list[Pod] = self.api.store.all(Pod)
        return {
            one.metadata.name: one.spec.nodeName or ""
            for one in pods
            if one.metadata.namespace == namespace
        }

    def told(self, name: str) -> list[str]:
        events: list[Event] = self.api.store.all(Event)
        return [
            f"{event.reason}: {event.message}"
            for event in events
            if event.involvedObject.name == name
        ]


def now() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await loops.cancel(*world.tasks)


async def until(check: Callable[[], object], within_s: float = 30) -> None:
    async with asyncio.timeout(within_s):
        while not check():
            await asyncio.sleep(0.01)


async def test_a_pod_gets_the_emptiest_node_and_is_told(world: World) -> None:
    for name in ("n1", "n2"):
        await world.api.create(node(name))
    await world.api.create(pod("old", cpu="1", nodeName="n1"))
    await world.lead()
    await world.api.create(pod("new"))

    await until(lambda: world.told("new"))
    assert world.nodes_of() == {"old": "n1", "new": "n2"}
    assert world.told("new") == ["Scheduled: Successfully assigned default/new to n2"]
    assert world.metrics.binding.attempts.labels("scheduled")._value.get() == 1


async def test_a_pod_that_fits_nowhere_is_told_once_and_placed_when_there_is_room(
    world: World,
) -> None:
    await world.api.create(node("n1", cpu="1"))
    await world.api.create(node("n2", taints=[{"key": "a", "effect": "NoSchedule"}]))
    await world.api.create(pod("large", cpu="900m", nodeName="n1"))
    await world.lead()
    await world.api.create(pod("new", cpu="500m"))

    text = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {a: }."
    await until(lambda: world.told("new"))
    assert world.told("new") == [f"FailedScheduling: {text}"]
    condition = world.scheduled("new")
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == (
        "False", "Unschedulable", text,
    )  # fmt: skip
    patches = len(world.api.made("patch", "pods"))
    await world.api.delete(Pod, "large", "default", grace_period_s=0)
    await until(lambda: world.nodes_of()["new"] == "n1")
    assert len(world.api.made("patch", "pods")) == patches
    bound = world.scheduled("new")
    assert bound is not None and bound.status == "True"


async def test_pods_of_others_and_gated_pods_are_left_alone(world: World) -> None:
    await world.api.create(node("n1"))
    await world.lead()
    await world.api.create(pod("other", schedulerName="other"))
    await world.api.create(pod("gated", schedulingGates=[{"name": "wait"}]))
    await world.api.create(pod("own"))

    await until(lambda: world.nodes_of()["own"])
    assert world.nodes_of() == {"other": "", "gated": "", "own": "n1"}
    await world.api.patch(Pod, "gated", {"spec": {"schedulingGates": None}}, namespace="default")
    await until(lambda: world.nodes_of()["gated"])


async def test_what_is_on_its_way_counts_and_no_node_is_overcommitted(world: World) -> None:
    """A hundred pods at once for ten places, bindings that are slow to be seen."""
    for number in range(2):
        await world.api.create(node(f"n{number}", cpu="1"))
    for number in range(40):
        await world.api.create(pod(f"p{number}", cpu="200m"))
    await world.lead()

    await until(lambda: sum(map(bool, world.nodes_of().values())) == 10)
    await until(lambda: all(world.scheduled(f"p{number}") for number in range(40)))
    assert Counter(world.nodes_of().values()) == {"n0": 5, "n1": 5, "": 30}


@pytest.mark.slow
async def test_a_binding_whose_outcome_is_unknown_keeps_its_room_and_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASSUMED_S", 0.5)
    await world.api.create(node("n1", cpu="1"))
    world.api.fail(TransportError("broken"), verb="create", plural="pods")
    api = world.api
    world.api.store.put(pod("first", cpu="600m"))
    await world.lead()
    await until(lambda: api.made("create", "pods"))
    world.api.store.put(pod("second", cpu="600m"))

    await until(lambda: world.scheduled("second"))
    assert world.nodes_of()["second"] == "", "the room may be taken"
    await until(lambda: any(world.nodes_of().values()))
    assert sorted(world.nodes_of().values()) == ["", "n1"]


@pytest.mark.slow
async def test_a_refused_binding_is_tried_again(world: World) -> None:
    await world.api.create(node("n1"))
    world.api.store.put(pod("p"))
    world.api.fail(ApiError(403, "Forbidden", "no"), verb="create", plural="pods", times=2)
    await world.lead()

    await until(lambda: world.nodes_of()["p"] == "n1")
    assert len(world.api.made("create", "pods")) == 3


@pytest.mark.slow
async def test_a_node_that_takes_no_more_of_a_namespace_is_left_out_for_its_pods(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server knows what its agent would have to hold."""
    monkeypatch.setattr(module, "CLOSED_S", 3.0)
    await world.api.create(node("n1", cpu="4"))
    await world.api.create(node("n2", cpu="1"))
    full = ApiError(403, "Forbidden", "exceeded", causes=(Cause(CAUSE_NODE_FULL, "exceeded"),))
    world.api.fail(full, verb="create", plural="pods")
    world.api.store.put(pod("p"))
    await world.lead()
    await until(lambda: world.nodes_of()["p"])
    assert world.nodes_of() == {"p": "n2"}, "the emptier n1 was full"

    world.api.fail(full, verb="create", plural="pods")
    world.api.store.put(pod("large", cpu="3"))
    await until(lambda: world.scheduled("large"))
    told = world.scheduled("large")
    assert told is not None and told.message == (
        "0/2 nodes are available: 1 Insufficient cpu,"
        " 1 node(s) had no memory for more pods of the namespace (--max-node-mib)."
    )
    await until(lambda: world.nodes_of()["large"] == "n1")


@pytest.mark.slow
async def test_leaders_that_follow_one_another_overcommit_no_node(world: World) -> None:
    """Each ends in the midst of its bindings, which are let finish."""
    for number in range(20):
        await world.api.create(node(f"n{number:02}", cpu="1"))
    for number in range(300):
        world.api.store.put(pod(f"p{number}", cpu="100m"))
    for _ in range(12):
        term = await world.lead()
        made = len(world.api.made("create", "pods"))
        await until(lambda made=made: len(world.api.made("create", "pods")) >= min(made + 8, 200))
        await loops.cancel(term)
    await world.lead()

    await until(lambda: sum(map(bool, world.nodes_of().values())) == 200)
    placed = Counter(world.nodes_of().values())
    del placed[""]
    assert set(placed.values()) == {10}


async def test_a_term_ends_only_when_its_bindings_have(world: World) -> None:
    await world.api.create(node("n1"))
    world.api.store.put(pod("p"))
    gate = world.api.hang(verb="create", plural="pods")
    term = await world.lead()
    await until(lambda: world.api.made("create", "pods"))
    term.cancel()
    await asyncio.sleep(0.1)
    assert not term.done()
    gate.set()
    with contextlib.suppress(asyncio.CancelledError):
        await term
    assert world.nodes_of() == {"p": "n1"}


HUGE = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"] * 10}] * 10}
            ]
            * 9
        }
    }
}


class Crowd:
    """A cluster in memory for many pods, whose server binds and marks at once."""

    def __init__(self, nodes: int) -> None:
        self.nodes = {f"n{number}": node(f"n{number}") for number in range(nodes)}
        self.pods: dict[str, Pod] = {}
        self.changed = asyncio.Event()
        self.marked: Counter[str] = Counter()

    def put(self, one: Pod) -> None:
        one.metadata.uid = one.key
        self.pods[one.key] = one
        self.changed.set()

    async def act(
        self, model: type[Any], name: str, subresource: str, record: Any, *, namespace: str = ""
    ) -> None:
        await asyncio.sleep(0)
        one = self.pods[f"{namespace}/{name}"]
        spec = one.spec.model_copy(update={"nodeName": record["target"]["name"]})
        self.put(one.model_copy(update={"spec": spec}))

    async def patch(self, model: type[Any], name: str, change: Any, **where: str) -> None:
        await asyncio.sleep(0)
        one = self.pods[f"{where['namespace']}/{name}"]
        marked = [PodCondition.from_wire(c) for c in change["status"]["conditions"]]
        self.marked[one.key] += 1
        status = one.status.model_copy(update={"conditions": marked})
        self.put(one.model_copy(update={"status": status}))

    def binder(self) -> Binder:
        events = EventRecorder(None, placement.OWN_SCHEDULER)
        metrics, client = LifecycleMetrics(), cast("Any", self)
        applier = Applier(client, events, metrics, now=now)
        return Binder(client, applier, metrics.binding, self.cluster, changed=self.changed)

    def cluster(self) -> Cluster:
        return Cluster(self.nodes, dict(self.pods))


@pytest.mark.slow
async def test_ten_thousand_pods_that_fit_nowhere_keep_nobody_waiting_and_block_nothing() -> None:
    crowd = Crowd(nodes=100)
    for number in range(10_000):
        more = {"affinity": HUGE} if number % 2 else {}
        crowd.put(pod(f"hostile/p{number}", cpu="64", **more))
    binding = loops.spawn(crowd.binder().run(), name="binder")
    await until(lambda: crowd.marked)
    for number in range(10):
        crowd.put(pod(f"victim/v{number}"))
    victims = [f"victim/v{number}" for number in range(10)]
    turns_s, speeds_ms = list[float](), list[float]()
    async with asyncio.timeout(120):
        while not all(crowd.pods[key].spec.nodeName for key in victims):
            at_s = time.thread_time()
            await asyncio.sleep(0)
            turns_s.append(time.thread_time() - at_s)
            if len(turns_s) % 100 == 1:
                speeds_ms.append(yardstick_ms())
    told = len(crowd.marked)
    await loops.cancel(binding)

    assert told < 5000, "they waited for their turns, not for all the others"
    assert max(turns_s) < 0.02 * slowness(speeds_ms)
    assert set(crowd.marked.values()) == {1}


async def test_a_defect_about_one_pod_ends_no_term_and_keeps_no_other_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for step in ("demand", "place"):
        monkeypatch.setattr(placement, step, failing(getattr(placement, step), f"odd-{step}"))
    await world.api.create(node("n1"))
    await world.api.create(pod("odd-demand"))
    await world.api.create(pod("odd-place"))
    await world.api.create(pod("odd-demand-too", nodeName="n1"))
    term = await world.lead()
    for name in ("odd-demand", "odd-place", "odd-demand-too"):
        await until(lambda name=name: f"pod default/{name} cannot be weighed" in caplog.text)
    await world.api.create(pod("next"))
    await until(lambda: world.nodes_of()["next"])
    assert not term.done()
    assert world.nodes_of()["odd-demand"] == world.nodes_of()["odd-place"] == ""


def failing(do: Callable[..., Any], of: str) -> Callable[..., Any]:
    def tried(pod: Pod, *more: Any) -> Any:
        if pod.metadata.name.startswith(of):
            raise TypeError("'int' object is not iterable")
        return do(pod, *more)

    return tried
