"""Timing after pkg/kubelet/kubelet_node_status.go and nodeagent.md §9.2 and §9.3."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nodeagent.node.rules.contention import SYSTEM_MEMORY, StallShare
from nodeagent.node.rules.facts import NodeFacts
from nodeagent.node.status_loop import OwnNode, StatusLoop, StatusTimes
from nodeagent.runtime.verdict import RuntimeHealth
from orch.client.events import EventRecorder
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.wire import errors
from orch.wire.records.core import Node, NodeCondition, NodeStatus, NodeSystemInfo
from orch.wire.records.meta import ObjectMeta
from tests.fakes import node
from tests.fakes.api import FakeApi

pytestmark = pytest.mark.looptime

REFUSED = TransportError("cannot reach https://api: connection refused")
TOLD = f"{REFUSED}; check that the server runs, and its address in the kubeconfig"


class Reported:
    """A status loop of node n1 against a fake server; `facts` is what it collects."""

    def __init__(
        self, rand: float = 0.0, settled: asyncio.Event | None = None, **settings: object
    ) -> None:
        self.api = FakeApi()
        self.watching = FakeApi(self.api.store)
        self.facts: NodeFacts = node.facts()
        self.collected = 0
        events = EventRecorder(self.watching, "nodeagent", host="n1", now=self.now)
        self.loop = StatusLoop(
            self.api,
            node.settings(**settings),
            self.collect,
            times=StatusTimes(now=self.now, rand=lambda: rand),
            own=OwnNode(events),
            settled=settled.wait if settled else None,  # type: ignore[arg-type]
        )
        self.events = events
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, *, watch: bool = False) -> None:
        """Called in the test, whose clock jumps; fixtures live on the real one."""
        self.tasks.append(loops.spawn(self.loop.run(), name="status"))
        if watch:
            self.tasks.append(loops.spawn(self.loop.watch(), name="watch"))

    async def collect(self) -> NodeFacts:
        self.collected += 1
        now_s = asyncio.get_running_loop().time()
        runtime = self.facts.runtime
        if runtime.last_good_s is not None:
            runtime = replace(runtime, last_good_s=now_s)
        return replace(self.facts, time_s=now_s, runtime=runtime)

    def now(self) -> datetime:
        seconds = asyncio.get_running_loop().time()
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)

    @property
    def node(self) -> Node:
        found = self.api.store.peek(Node, "n1")
        assert found is not None
        return found

    def ready(self) -> NodeCondition:
        return next(c for c in self.node.status.conditions or () if c.type == "Ready")

    def verbs(self) -> list[str]:
        return [call.verb for call in self.api.made(plural="nodes")]


@pytest.fixture
async def told() -> AsyncIterator[Reported]:
    told = Reported()
    yield told
    await loops.cancel(*told.tasks)


async def test_the_node_is_registered_and_reported(told: Reported) -> None:
    told.start()
    await asyncio.sleep(1)
    assert told.verbs()[0] == "create"
    assert told.ready().status == "True"
    assert told.loop.registered and told.loop.ready


async def test_the_port_told_before_the_start_is_the_one_reported(told: Reported) -> None:
    told.loop.serve_on(4711)
    told.start()
    await asyncio.sleep(1)
    endpoints = told.node.status.daemonEndpoints
    assert endpoints and endpoints.nodeagentEndpoint and endpoints.kubeletEndpoint
    assert (endpoints.nodeagentEndpoint.Port, endpoints.kubeletEndpoint.Port) == (4711, 4711)


async def test_without_news_it_is_computed_every_ten_seconds_and_reported_every_five_minutes(
    told: Reported,
) -> None:
    told.start()
    await asyncio.sleep(299)
    collected, patches = told.collected, len(told.api.made("patch"))
    await asyncio.sleep(600)
    assert told.collected - collected == 60
    assert len(told.api.made("patch")) - patches == 2
    assert not told.api.made("get")


async def test_the_report_after_news_or_the_start_is_moved_and_later_ones_are_not(
    told: Reported,
) -> None:
    told.start()
    await asyncio.sleep(1)
    for _ in range(2):
        patches = len(told.api.made("patch"))
        for pause_s, more in ((148, 0), (10, 1), (280, 1), (20, 2)):  # at 150 s and at 450 s
            await asyncio.sleep(pause_s)
            assert len(told.api.made("patch")) - patches == more
        told.facts = node.facts(problems=("news",))
        told.loop.wake()
        await asyncio.sleep(1)


async def test_the_pause_is_stretched_by_up_to_four_percent() -> None:
    told = Reported(rand=1.0)
    told.start()
    await asyncio.sleep(1)
    collected = told.collected
    await asyncio.sleep(104)
    await loops.cancel(*told.tasks)
    assert told.collected - collected == 10


async def test_nothing_is_reported_before_the_facts_are_more_than_a_guess() -> None:
    settled = asyncio.Event()
    told = Reported(settled=settled)
    told.start()
    await asyncio.sleep(20)
    assert told.collected == 0 and told.api.calls == []
    settled.set()
    await asyncio.sleep(1)
    await loops.cancel(*told.tasks)
    assert told.ready().status == "True"


async def test_news_are_reported_with_the_next_round(told: Reported) -> None:
    told.start()
    await asyncio.sleep(1)
    before = told.ready()
    told.facts = node.facts(problems=("node is shutting down",))
    await asyncio.sleep(10)
    after = told.ready()
    assert (after.status, after.message) == ("False", "node is shutting down")
    assert after.lastTransitionTime != before.lastTransitionTime


async def test_stalls_set_a_condition_that_outlasts_their_easing() -> None:
    told = Reported(contention={SYSTEM_MEMORY: 10.0})
    seen = []
    told.facts = node.facts(usage=node.usage(stalls={SYSTEM_MEMORY: StallShare(0.0, 0.0)}))
    told.start()
    for avg10, avg60 in ((0.0, 0.0), (50.0, 50.0), (0.0, 20.0), (0.0, 9.0)):
        stalls = {SYSTEM_MEMORY: StallShare(avg10, avg60)}
        told.facts = node.facts(usage=node.usage(stalls=stalls))
        await asyncio.sleep(11)
        (condition,) = [c for c in told.node.status.conditions or () if c.type == SYSTEM_MEMORY]
        seen.append(condition.status)
    for task in told.tasks:
        await loops.cancel(task)
    assert seen == ["False", "True", "True", "False"]


async def test_a_wake_is_answered_at_once(told: Reported) -> None:
    told.start()
    await asyncio.sleep(1)
    told.facts = node.facts(problems=("node is shutting down",))
    told.loop.wake()
    await asyncio.sleep(0.01)
    assert told.ready().status == "False"


async def test_it_looks_every_tenth_of_a_second_until_ready(told: Reported) -> None:
    told.facts = node.facts(runtime=RuntimeHealth())
    told.start()
    await asyncio.sleep(5)
    assert told.ready().message == "container runtime status check may not have completed yet"
    assert told.collected >= 49 and len(told.api.made("patch")) <= 1
    told.facts = node.facts()
    await asyncio.sleep(0.2)
    assert told.ready().status == "True"
    collected = told.collected
    await asyncio.sleep(9)
    assert told.collected == collected


async def test_the_haste_ends_after_two_minutes(told: Reported) -> None:
    told.facts = node.facts(runtime=RuntimeHealth(absent="no container runtime is configured"))
    told.start()
    await asyncio.sleep(121)
    collected = told.collected
    await asyncio.sleep(100)
    assert told.collected - collected == 10


async def test_it_is_never_ready_before_the_first_check_of_the_runtime(told: Reported) -> None:
    statuses = []
    told.facts = node.facts(runtime=RuntimeHealth())
    told.start()
    for second in range(4):
        await asyncio.sleep(1)
        statuses.append(told.ready().status)
        if second == 1:
            told.facts = node.facts()
    assert statuses == ["False", "False", "True", "True"]


async def test_registration_is_tried_for_ever(
    told: Reported, caplog: pytest.LogCaptureFixture
) -> None:
    told.api.fail(REFUSED, times=float("inf"))
    told.start()
    await asyncio.sleep(60)
    tries = len(told.api.made("create"))
    assert 12 <= tries <= 16
    told.api.heal()
    await asyncio.sleep(8)
    assert told.loop.registered
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1


async def test_a_round_is_tried_five_times_from_a_fresh_read(told: Reported) -> None:
    told.start()
    await asyncio.sleep(1)
    told.api.calls.clear()
    told.api.fail(REFUSED, verb="patch", times=4)
    told.facts = node.facts(images=())
    await asyncio.sleep(10)
    assert told.verbs() == ["patch", "get", "patch", "get", "patch", "get", "patch", "get", "patch"]
    assert told.api.transport.resets == 3
    assert told.loop.failures == 0


async def test_a_failing_round_leaves_the_next_to_its_time(
    told: Reported, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    told.start()
    await asyncio.sleep(1)
    told.api.fail(REFUSED, times=10)
    told.facts = node.facts(images=())
    await asyncio.sleep(30)
    assert told.loop.failures == 2
    texts = [record.getMessage() for record in caplog.records]
    assert texts == [
        "node n1 is registered",
        f"cannot report the status of node n1, retrying: {TOLD}",
        "reporting the status of node n1 again (after 20.0 s)",
    ]


async def test_an_outage_that_gets_another_cause_says_that_one_and_its_next_step_too(
    told: Reported, caplog: pytest.LogCaptureFixture
) -> None:
    told.start()
    await asyncio.sleep(1)
    told.facts = node.facts(images=())
    forbidden = errors.ApiError(403, "Forbidden", "nodes are not yours")
    expired = TransportError("the client certificate expired on 2026-01-01T00:00:00Z")
    for failure in (REFUSED, forbidden, REFUSED, expired):
        told.api.heal()
        told.api.fail(failure, times=float("inf"))
        await asyncio.sleep(60)

    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    lost = "cannot report the status of node n1, retrying: "
    step = "; have one issued by the server's authority, as 'nodeagent join' does"
    assert said == [f"{lost}{cause}" for cause in (TOLD, forbidden, f"{expired}{step}")]


async def test_what_others_wrote_in_between_is_not_overwritten(told: Reported) -> None:
    told.start()
    await asyncio.sleep(1)
    foreign = told.node
    extra = NodeCondition(type="KernelDeadlock", status="False")
    foreign.status.conditions = [*(foreign.status.conditions or []), extra]
    told.api.store.put(foreign)
    told.facts = node.facts(images=())
    await asyncio.sleep(10)
    assert "KernelDeadlock" in {c.type for c in told.node.status.conditions or ()}
    assert told.node.status.images == []


async def test_a_ready_that_was_judged_unknown_is_put_right_at_once(told: Reported) -> None:
    told.start(watch=True)
    await asyncio.sleep(5)
    judged = told.node
    for condition in judged.status.conditions or ():
        condition.status, condition.reason = "Unknown", "NodeStatusUnknown"
    told.api.store.put(judged)
    await asyncio.sleep(0.1)
    assert told.ready().status == "True"


async def test_labels_of_the_machine_are_put_back_and_others_left_alone(told: Reported) -> None:
    told.start(watch=True)
    await asyncio.sleep(15)
    for number in range(20):
        meta = told.node.metadata
        changed = {**(meta.labels or {}), "orch.io/os": f"o{number}", "orch.io/hostname": "mine"}
        changed.pop("orch.io/arch", None)
        labelled = meta.model_copy(update={"labels": changed})
        await told.watching.update(told.node.model_copy(update={"metadata": labelled}))
        await asyncio.sleep(1)
    await asyncio.sleep(20)
    assert told.node.metadata.labels == {
        "orch.io/os": "linux", "orch.io/arch": "amd64", "orch.io/hostname": "mine",
    }  # fmt: skip
    relabelled = [call for call in told.api.made("patch") if not call.subresource]
    assert 2 <= len(relabelled) <= 5, "once a period, whoever else insists"
    assert told.ready().status == "True"


async def test_a_deleted_node_is_registered_again(told: Reported) -> None:
    told.start(watch=True)
    await asyncio.sleep(5)
    told.api.store.remove(Node, "n1")
    await asyncio.sleep(0.1)
    assert told.ready().status == "True"


async def test_a_deleted_node_that_cannot_be_registered_is_said_once(
    told: Reported, caplog: pytest.LogCaptureFixture
) -> None:
    told.start(watch=True)
    await asyncio.sleep(5)
    told.api.fail(errors.forbidden("no"), verb="create", plural="nodes", times=float("inf"))
    told.api.store.remove(Node, "n1")
    await asyncio.sleep(60)
    assert caplog.text.count("node n1 was deleted from the API server") == 1
    told.api.heal()
    await asyncio.sleep(10)
    assert told.ready().status == "True"


async def test_its_own_reports_wake_it_no_more_than_once(told: Reported) -> None:
    told.start(watch=True)
    await asyncio.sleep(8)
    assert told.collected <= 3


async def test_a_change_of_boot_is_told(told: Reported) -> None:
    status = NodeStatus(nodeInfo=NodeSystemInfo(bootID="old"))
    told.api.store.put(Node(metadata=ObjectMeta(name="n1"), status=status))
    told.start()
    told.tasks.append(loops.spawn(told.events.run(), name="events"))
    await asyncio.sleep(1)
    reasons = [call.body["reason"] for call in told.watching.made("create", "events")]
    assert "Rebooted" in reasons and "NodeHasSufficientMemory" in reasons
    assert "NodeReady" not in reasons


async def test_conflicts_with_other_writers_are_resolved(told: Reported) -> None:
    told.start()
    await asyncio.sleep(1)
    told.api.fail(errors.conflict("nodes", "n1", "modified"), verb="patch", times=2)
    told.facts = node.facts(images=())
    await asyncio.sleep(10)
    assert told.node.status.images == [] and told.loop.failures == 0


async def test_standalone_it_says_so_once_and_measures_the_node_for_static_pods(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    told, own, heard = Reported(), OwnNode(), asyncio.Event()
    own.on_known = heard.set
    loop = StatusLoop(None, node.settings(), told.collect, own=own)
    tasks = [loops.spawn(loop.run(), name="status"), loops.spawn(loop.watch(), name="watch")]
    await asyncio.sleep(600)
    await loops.cancel(*tasks)
    assert told.collected == 1
    assert heard.is_set() and own.judging(False) is None
    measured = own.judging(True)
    assert measured and measured.status.nodeInfo and measured.status.nodeInfo.kernelVersion
    assert [record.getMessage()[:18] for record in caplog.records] == ["running standalone"]
