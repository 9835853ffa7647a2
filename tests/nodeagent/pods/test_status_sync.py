"""Statuses of pods reach the API, which is in memory and comes and goes."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from nodeagent.pods import status_sync
from nodeagent.pods.counts import Timings
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.sources.mirror import mirror_of
from nodeagent.pods.sources.source import ApiSource
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.pods.status_sync import StatusSync, status_patch
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.wire.errors import ApiError
from orch.wire.records.pods import Pod, PodCondition, PodStatus
from tests.fakes.api import FakeApi
from tests.fakes.pods import pod

pytestmark = pytest.mark.looptime

RUNNING = PodStatus(phase="Running", podIP="10.0.0.2")
SETTINGS = PodSettings(node_name="node1", root_dir="/root", pod_logs_dir="/logs")


def bound(**fields: Any) -> Pod:
    return pod(nodeName="node1", **fields)


class Reporter:
    """StatusSync with the loops it needs."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.registry = PodRegistry(SETTINGS)
        self.source = ApiSource(self.api, "node1")  # type: ignore[arg-type]
        self.sync = StatusSync(self.api, self.registry, self.source, Timings())  # type: ignore[arg-type]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks.append(loops.spawn(self.source.run(lambda: None), name="source"))
        self._tasks.append(loops.spawn(self.sync.run(), name="sync"))
        await asyncio.sleep(1)

    async def stop(self) -> None:
        await loops.cancel(*self._tasks)

    async def stored(self) -> Pod:
        stored: Pod = await self.api.get(Pod, "web", "default")
        return stored


@pytest_asyncio.fixture
async def reporter() -> AsyncIterator[Reporter]:
    reporter = Reporter()
    yield reporter
    await reporter.stop()


async def desired(reporter: Reporter) -> Pod:
    """A pod the API has bound to the node, known to the registry."""
    made: Pod = await reporter.api.create(bound())
    reporter.registry.set_desired([made])
    return made


async def test_a_changed_status_is_patched_once(reporter: Reporter) -> None:
    made = await desired(reporter)
    await reporter.start()
    reporter.registry.set_status(made.metadata.uid or "", RUNNING)
    await asyncio.sleep(1)
    assert (await reporter.stored()).status.phase == "Running"
    await asyncio.sleep(300)
    assert len(reporter.api.made("patch")) == 1


async def test_only_the_newest_status_is_sent(reporter: Reporter) -> None:
    made = await desired(reporter)
    await reporter.start()
    for n in range(20):
        status = PodStatus(phase="Running", message=f"number {n}")
        reporter.registry.set_status(made.metadata.uid or "", status)
    await asyncio.sleep(1)
    assert len(reporter.api.made("patch")) == 1
    assert (await reporter.stored()).status.message == "number 19"


async def test_an_api_that_is_away_is_tried_again_until_it_is_back(reporter: Reporter) -> None:
    made = await desired(reporter)
    await reporter.start()
    reporter.api.fail(TransportError("refused"), verb="patch", times=float("inf"))
    reporter.registry.set_status(made.metadata.uid or "", RUNNING)
    await asyncio.sleep(600)
    assert len(reporter.api.made("patch")) < 120, "tries come at most every 7 s"
    reporter.api.heal()
    await asyncio.sleep(8)
    assert (await reporter.stored()).status.phase == "Running"


async def test_a_status_someone_else_overwrote_is_set_right_within_a_minute(
    reporter: Reporter,
) -> None:
    made = await desired(reporter)
    await reporter.start()
    reporter.registry.set_status(made.metadata.uid or "", RUNNING)
    await asyncio.sleep(1)
    await reporter.api.patch(
        Pod, "web", {"status": {"phase": "Failed"}}, namespace="default", subresource="status"
    )
    await asyncio.sleep(61)
    assert (await reporter.stored()).status.phase == "Running"


async def test_a_condition_set_meanwhile_by_somebody_else_stays(reporter: Reporter) -> None:
    made = await desired(reporter)
    await reporter.start()
    why = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
    unready = PodStatus.from_wire({"podIPs": [{"ip": "10.0.0.2"}], "conditions": [why]})
    reporter.registry.set_status(made.metadata.uid or "", unready)
    await asyncio.sleep(1)
    gate = {"type": "example.com/served", "status": "True"}
    await reporter.api.patch(
        Pod,
        "web",
        {"status": {"conditions": [gate]}},
        namespace="default",
        subresource="status",
        kind="strategic",
    )
    ready = PodStatus.from_wire({"podIPs": [{"ip": "10.0.0.3"}], "conditions": [READY]})
    reporter.registry.set_status(made.metadata.uid or "", ready)
    await asyncio.sleep(300)
    status = (await reporter.stored()).status.to_wire()
    assert sorted(status["conditions"], key=lambda c: str(c["type"])) == [READY, gate]
    assert status["podIPs"] == [{"ip": "10.0.0.3"}]
    assert len(reporter.api.made("patch")) == 3


async def test_sweeps_compare_again_only_what_is_another_object(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[PodStatus] = []

    def counted(stored: PodStatus, wanted: PodStatus) -> dict[str, Any]:
        compared.append(wanted)
        return status_patch(stored, wanted)

    monkeypatch.setattr(status_sync, "status_patch", counted)
    made = await desired(reporter)
    await reporter.start()
    reporter.registry.set_status(made.metadata.uid or "", RUNNING)
    await asyncio.sleep(61)
    before = len(compared)
    await asyncio.sleep(300)
    assert len(compared) == before
    changed = PodStatus(phase="Running", podIP="10.0.0.3")
    reporter.registry.set_status(made.metadata.uid or "", changed)
    await asyncio.sleep(1)
    assert len(compared) > before
    assert (await reporter.stored()).status.podIP == "10.0.0.3"


async def test_nothing_is_kept_of_pods_that_came_and_went(reporter: Reporter) -> None:
    await reporter.start()
    statuses = []
    for n in range(3):
        made = await reporter.api.create(bound(metadata={"name": f"web{n}", "uid": None}))
        reporter.registry.set_desired([made])
        status = PodStatus(phase="Running", message=f"number {n}")
        statuses.append(weakref.ref(status))
        reporter.registry.set_status(made.metadata.uid or "", status)
        await asyncio.sleep(61)
        await reporter.api.delete(Pod, f"web{n}", "default", grace_period_s=0)
    del status
    reporter.registry.set_desired([])
    await asyncio.sleep(61)
    gc.collect()
    assert [one() for one in statuses] == [None] * 3


async def test_the_status_of_a_static_pod_goes_to_its_mirror_once_that_exists(
    reporter: Reporter,
) -> None:
    static = bound(
        metadata={"annotations": {"orch.io/config.source": "file", "orch.io/config.hash": "abc"}}
    )
    reporter.registry.set_desired([static])
    await reporter.start()
    reporter.registry.set_status(static.metadata.uid or "", RUNNING)
    await asyncio.sleep(5)
    await reporter.api.create(mirror_of(static, None))
    await asyncio.sleep(1)
    assert (await reporter.stored()).status.phase == "Running"
    await reporter.api.delete(Pod, "web", "default", grace_period_s=0)
    await reporter.api.create(mirror_of(static, None))
    await asyncio.sleep(1)
    assert (await reporter.stored()).status.phase == "Running", "a mirror made anew has it too"


async def test_another_pod_of_the_same_name_is_not_touched(reporter: Reporter) -> None:
    await reporter.api.create(bound())
    ours = bound()
    reporter.registry.set_desired([ours])
    await reporter.start()
    reporter.registry.set_status(ours.metadata.uid or "", RUNNING)
    await asyncio.sleep(5)
    assert not reporter.api.made("patch")


async def test_a_pod_that_is_gone_here_is_deleted_there_even_after_an_outage(
    reporter: Reporter,
) -> None:
    made = await desired(reporter)
    await reporter.start()
    reporter.api.fail(TransportError("refused"), verb="delete", times=5)
    reporter.sync.removed(made)
    await asyncio.sleep(30)
    with pytest.raises(ApiError):
        await reporter.stored()
    assert reporter.api.made("delete")[-1].body == {
        "gracePeriodSeconds": 0,
        "uid": made.metadata.uid,
    }


async def test_how_a_pod_ended_is_told_before_it_is_deleted(reporter: Reporter) -> None:
    made = await desired(reporter)
    await reporter.start()
    reporter.api.fail(ApiError(503, "ServiceUnavailable", "busy"), verb="patch", times=3)
    reporter.registry.set_status(made.metadata.uid or "", PodStatus(phase="Failed"))
    reporter.sync.removed(made)
    await asyncio.sleep(30)
    made_calls = [call.verb for call in reporter.api.calls if call.verb in ("patch", "delete")]
    assert made_calls == ["patch"] * 4 + ["delete"]


async def test_an_end_that_comes_while_a_status_is_sent_is_told_before_the_pod_is_deleted(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await desired(reporter)
    uid = made.metadata.uid or ""
    await reporter.start()
    patch, delete = reporter.api.patch, reporter.api.delete
    seen: list[str] = []

    async def slow(model: Any, name: str, change: Any, **named: Any) -> Any:
        await asyncio.sleep(1)
        seen.append(change["status"]["phase"])
        return await patch(model, name, change, **named)

    async def remember(*args: Any, **named: Any) -> Any:
        seen.append("deleted")
        return await delete(*args, **named)

    monkeypatch.setattr(reporter.api, "patch", slow)
    monkeypatch.setattr(reporter.api, "delete", remember)
    reporter.registry.set_status(uid, RUNNING)
    await asyncio.sleep(0.5)
    reporter.registry.set_status(uid, PodStatus(phase="Succeeded"))
    reporter.sync.removed(made)
    await asyncio.sleep(20)
    assert seen == ["Running", "Succeeded", "deleted"]


async def test_a_successor_of_the_same_name_is_not_deleted(reporter: Reporter) -> None:
    former = await desired(reporter)
    await reporter.api.delete(Pod, "web", "default", grace_period_s=0)
    await reporter.api.create(bound())
    await reporter.start()
    reporter.sync.removed(former)
    await asyncio.sleep(30)
    assert len(reporter.api.made("delete")) == 2
    assert await reporter.stored()


async def test_a_refusal_does_not_hold_up_other_pods(reporter: Reporter) -> None:
    made = await desired(reporter)
    other = await reporter.api.create(bound(metadata={"name": "other", "uid": None}))
    reporter.registry.set_desired([made, other])
    await reporter.start()
    reporter.api.fail(ApiError(403, "Forbidden", "not yours"), verb="patch", times=1)
    reporter.registry.set_status(made.metadata.uid or "", RUNNING)
    reporter.registry.set_status(other.metadata.uid or "", RUNNING)
    await asyncio.sleep(1)
    assert (await reporter.api.get(Pod, "other", "default")).status.phase == "Running"


async def test_a_namespace_with_much_to_report_keeps_no_other_waiting(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant may bind thousands of pods to the node, each of which it refuses."""
    many = [
        await reporter.api.create(bound(metadata={"name": f"p{number}", "uid": None}))
        for number in range(100)
    ]
    other = {"name": "other", "namespace": "elsewhere", "uid": None}
    one = await reporter.api.create(bound(metadata=other))
    reporter.registry.set_desired([*many, one])
    await reporter.start()
    real, told = reporter.api.patch, list[str]()

    async def slow(model: type[Pod], name: str, *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0.1)
        told.append(name)
        return await real(model, name, *arguments, **named)

    monkeypatch.setattr(reporter.api, "patch", slow)
    for refused in many:
        reporter.registry.set_status(refused.metadata.uid or "", PodStatus(phase="Failed"))
    await asyncio.sleep(1.05)
    reporter.registry.set_status(one.metadata.uid or "", RUNNING)
    await asyncio.sleep(20)
    assert told.index("other") <= 12
    assert len(told) == 101
    monkeypatch.undo()


async def test_an_object_that_always_fails_holds_up_no_other_and_is_said_once(
    reporter: Reporter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    stuck = await desired(reporter)
    other = await reporter.api.create(bound(metadata={"name": "other", "uid": None}))
    gone = await reporter.api.create(bound(metadata={"name": "gone", "uid": None}))
    reporter.registry.set_desired([stuck, other])
    await reporter.start()
    real = reporter.api.patch
    tried: list[str] = []

    async def patch(model: type[Pod], name: str, *arguments: Any, **named: Any) -> Any:
        tried.append(name)
        if name == "web":
            raise ApiError(500, "InternalError", "its row is broken")
        return await real(model, name, *arguments, **named)

    monkeypatch.setattr(reporter.api, "patch", patch)
    reporter.registry.set_status(stuck.metadata.uid or "", RUNNING)
    await asyncio.sleep(100)
    reporter.sync.removed(gone)
    for n in range(3):
        status = PodStatus(phase="Running", message=f"number {n}")
        reporter.registry.set_status(other.metadata.uid or "", status)
        await asyncio.sleep(0.1)
        shown = (await reporter.api.get(Pod, "other", "default")).status
        assert shown.message == f"number {n}", "what works is sent at once"
    with pytest.raises(ApiError):
        await reporter.api.get(Pod, "gone", "default")
    assert 10 < tried.count("web") < 30, "and what does not, now and then"
    assert caplog.messages == ["cannot report the state of pods: its row is broken"]
    monkeypatch.undo()
    await asyncio.sleep(8)
    assert caplog.messages[1:] == ["reporting the state of pods again (after 103.6 s)"]


READY = {"type": "Ready", "status": "True"}


def conditions(**statuses: str) -> PodStatus:
    listed = [{"type": kind, "status": status} for kind, status in statuses.items()]
    return PodStatus.from_wire({"conditions": listed})


PATCHES: list[tuple[PodStatus, PodStatus, dict[str, Any]]] = [
    (RUNNING, RUNNING, {}),
    (PodStatus(), RUNNING, {"phase": "Running", "podIP": "10.0.0.2"}),
    (RUNNING, PodStatus(phase="Running"), {"podIP": None}),
    (
        PodStatus.from_wire({"podIPs": [{"ip": "10.0.0.2"}]}),
        PodStatus.from_wire({"podIPs": [{"ip": "10.0.0.3"}]}),
        {"podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.3"}]},
    ),
    (conditions(Ready="True", Gate="True"), conditions(Gate="False", Ready="True"), {}),
    (
        conditions(Ready="False", Gate="True"),
        conditions(Ready="True"),
        {"conditions": [{**dict.fromkeys(PodCondition.model_fields), **READY}]},
    ),
    (PodStatus.from_wire({"phase": "Running", "later": 1}), PodStatus(phase="Running"), {}),
]


@pytest.mark.parametrize(("stored", "wanted", "patch"), PATCHES)
async def test_the_patch_is_the_difference_and_leaves_unknown_fields(
    stored: PodStatus, wanted: PodStatus, patch: dict[str, Any]
) -> None:
    assert status_patch(stored, wanted) == patch
