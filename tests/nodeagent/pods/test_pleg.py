"""The runtime's state in the registry: cheap, complete, and never older than what was done."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from nodeagent.pods import pleg
from nodeagent.pods.actions import StartContainer
from nodeagent.pods.counts import PodCounts
from nodeagent.pods.observed import Detail, Row
from nodeagent.pods.observed import row_of as observed_row_of
from nodeagent.pods.pleg import Pleg
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec import spec
from nodeagent.pods.spec.spec import ContainerContext, PodSettings
from nodeagent.runtime.base import (
    Container,
    ContainerDetail,
    ContainerState,
    RuntimeNotFound,
    RuntimeTimeout,
    RuntimeUnavailable,
    SandboxSpec,
)
from orch.component.process import loops
from orch.wire.records.pods import Pod
from tests.fakes.pods import UID, pod
from tests.fakes.retained import retained
from tests.fakes.runtime import FakeRuntime

pytestmark = pytest.mark.looptime

SETTINGS = PodSettings(node_name="node1", root_dir="/r", pod_logs_dir="/l")
OTHER = "other-uid"


class Observed:
    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.registry = PodRegistry(SETTINGS)
        self.changes: list[str] = []
        self.registry.on_view(self.changes.append)
        self.counts = PodCounts()
        self.pleg = Pleg(self.runtime, self.registry, self.counts, SETTINGS.node_name)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = loops.spawn(self.pleg.run(), name="pleg")
        await asyncio.sleep(0.5)

    async def stop(self) -> None:
        if self._task:
            await loops.cancel(self._task)

    async def sandbox(self, of: Pod, attempt: int = 0) -> tuple[str, SandboxSpec]:
        wanted = spec.sandbox_spec(of, SETTINGS, attempt=attempt)
        return await self.runtime.run_sandbox(wanted), wanted

    async def container(self, of: Pod, *, started: bool = True) -> str:
        sandbox_id, sandbox = await self.sandbox(of)
        wanted = spec.container_spec(
            of, of.spec.containers[0], StartContainer("app", 0, 0), SETTINGS, ContainerContext()
        )
        made = await self.runtime.create_container(sandbox_id, wanted, sandbox)
        if started:
            await self.runtime.start_container(made)
        return made

    async def second(self, of: str) -> str:
        """Another container of the same pod, running."""
        container = self.runtime.containers[of]
        sandbox = self.runtime.sandboxes[container.sandbox_id]
        made = await self.runtime.create_container(
            container.sandbox_id, replace(container.spec, name="more"), sandbox.spec
        )
        await self.runtime.start_container(made)
        return made

    def state(self, uid: str = UID) -> ContainerState | None:
        latest = self.registry.view(uid).latest("app")
        return latest.container.state if latest else None


@pytest_asyncio.fixture
async def observed() -> AsyncIterator[Observed]:
    observed = Observed()
    yield observed
    await observed.stop()


def other() -> Pod:
    return pod(metadata={"name": "other", "uid": OTHER})


async def test_nothing_is_kept_of_a_pod_that_is_not_listed(observed: Observed) -> None:
    uid = "gone-before-its-details-were-read"
    await observed.pleg.refresh(uid, sandboxes=["gone"])
    await observed.pleg.relist()
    assert not retained(observed.pleg, {uid})


async def test_pods_are_found_with_the_sandbox_of_each_container(observed: Observed) -> None:
    await observed.container(pod())
    assert not observed.registry.listed
    await observed.start()
    view = observed.registry.view(UID)
    assert (view.namespace, view.name) == ("default", "web")
    assert view.sandbox and view.sandbox.ips
    assert view.containers[0].container.sandbox_id == view.sandbox.sandbox.id
    assert observed.changes == [UID]


async def test_details_are_read_only_of_what_changed(observed: Observed) -> None:
    made = await observed.container(pod())
    await observed.container(other())
    await observed.start()
    await asyncio.sleep(30)
    assert len(observed.runtime.called("container_detail")) == 2
    assert len(observed.runtime.called("sandbox_detail")) == 2
    observed.runtime.exit(made, 3)
    await asyncio.sleep(2)
    assert observed.runtime.called("container_detail")[2:] == [made]
    assert observed.state() is ContainerState.EXITED
    assert observed.changes[2:] == [UID]


async def test_what_is_gone_is_dropped(observed: Observed) -> None:
    await observed.container(pod())
    await observed.start()
    await observed.runtime.remove_sandbox(next(iter(observed.runtime.sandboxes)))
    await asyncio.sleep(2)
    assert observed.registry.view(UID).empty
    assert observed.registry.targets() == []


async def test_a_list_that_says_nothing_new_is_not_compared_again_in_whatever_order_it_comes(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await observed.container(pod())
    await observed.container(other())
    listing, turns = observed.runtime.list_containers, itertools.cycle((1, -1))

    async def in_turning_order() -> Sequence[Container]:
        return (await listing())[:: next(turns)]

    monkeypatch.setattr(observed.runtime, "list_containers", in_turning_order)
    await observed.start()
    await asyncio.sleep(5)
    compared: list[Detail] = []

    def row_of(detail: Detail) -> Row:
        compared.append(detail)
        return observed_row_of(detail)

    monkeypatch.setattr(pleg, "row_of", row_of)
    await asyncio.sleep(60)
    assert not compared
    observed.runtime.exit(made)
    await asyncio.sleep(2)
    assert compared


async def test_a_list_that_says_nothing_new_brings_back_what_was_dropped_meanwhile(
    observed: Observed,
) -> None:
    made = await observed.container(pod())
    await observed.start()
    await asyncio.sleep(5)
    observed.runtime.fail(
        "container_detail", RuntimeNotFound("container_detail", "not now"), times=1
    )
    await observed.pleg.refresh(UID, containers=[made])
    assert observed.state() is None
    await asyncio.sleep(12)
    assert observed.state() is ContainerState.RUNNING


async def test_a_listing_that_began_before_a_step_does_not_undo_it(observed: Observed) -> None:
    await observed.start()
    hold = observed.runtime.hold("list_containers")
    await hold.reached.wait()
    sandbox_id, _ = await observed.sandbox(pod())
    await observed.pleg.refresh(UID, sandboxes=[sandbox_id])
    listing = observed.runtime.list_sandboxes
    hold.release()
    await asyncio.sleep(0.01)
    assert observed.registry.view(UID).sandbox, "the listing knew nothing of it yet"
    assert await listing()


async def test_a_slow_detail_holds_up_its_own_pod_only(observed: Observed) -> None:
    await observed.container(pod())
    await observed.start()
    hold = observed.runtime.hold("sandbox_detail")
    await observed.container(other())
    await asyncio.sleep(2)
    assert not observed.registry.settled(OTHER)
    assert observed.registry.settled(UID)
    observed.runtime.exit(next(iter(observed.runtime.containers)))
    await asyncio.sleep(2)
    assert observed.state() is ContainerState.EXITED
    hold.release()
    await asyncio.sleep(2)
    assert observed.registry.settled(OTHER)


async def test_a_pod_whose_details_cannot_be_read_is_not_settled(observed: Observed) -> None:
    observed.runtime.fail("container_detail", RuntimeTimeout("container_detail", "slow"), times=3)
    await observed.container(pod())
    await observed.start()
    await asyncio.sleep(1)
    assert not observed.registry.settled(UID)
    await asyncio.sleep(5)
    assert observed.registry.settled(UID)
    assert observed.state() is ContainerState.RUNNING


async def test_what_was_read_before_an_answer_failed_is_shown_once_the_rest_is_known(
    observed: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await observed.container(pod())
    second = await observed.second(first)
    await observed.start()
    assert len(observed.registry.view(UID).containers) == 2
    real = observed.runtime.container_detail

    async def detail(container_id: str) -> ContainerDetail:
        if container_id == second:
            raise RuntimeTimeout("container_detail", "slow")
        return await real(container_id)

    monkeypatch.setattr(observed.runtime, "container_detail", detail)
    observed.runtime.containers[second].turn(ContainerState.UNKNOWN)
    observed.runtime.exit(first)
    await asyncio.sleep(3)
    assert not observed.registry.settled(UID)
    observed.runtime.containers[second].turn(ContainerState.RUNNING)  # as it was known before
    await asyncio.sleep(12)
    assert observed.registry.settled(UID)
    states = {
        one.container.id: one.container.state for one in observed.registry.view(UID).containers
    }
    assert states == {first: ContainerState.EXITED, second: ContainerState.RUNNING}


async def test_a_runtime_away_and_back_is_said_once_each(
    observed: Observed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await observed.container(pod())
    await observed.start()
    observed.runtime.fail("list_sandboxes", RuntimeUnavailable("list_sandboxes", "refused"))
    await asyncio.sleep(30)
    assert observed.pleg.error == "refused"
    assert observed.state() is ContainerState.RUNNING, "what was known stays"
    observed.runtime.heal("list_sandboxes")
    await asyncio.sleep(2)
    assert caplog.text.count("does not answer") == 1
    assert caplog.text.count("answers again") == 1


@pytest.mark.parametrize("last_listed_s", [0, 30])
async def test_a_runtime_that_lists_nothing_for_three_minutes_is_a_problem_of_the_node(
    observed: Observed, last_listed_s: float
) -> None:
    assert observed.pleg.problems() == (), "it has not begun"
    refused = RuntimeUnavailable("list_sandboxes", "refused")
    if not last_listed_s:
        observed.runtime.fail("list_sandboxes", refused)
    await observed.start()
    await asyncio.sleep(last_listed_s)
    observed.runtime.fail("list_sandboxes", refused)
    await asyncio.sleep(165)
    assert observed.pleg.problems() == ()
    await asyncio.sleep(20)
    assert observed.pleg.problems() == (
        "PLEG is not healthy: the container runtime has not listed its pods for over 180 s: "
        "refused",
    )
    observed.runtime.heal("list_sandboxes")
    await asyncio.sleep(2)
    assert observed.pleg.problems() == ()


async def waiting_for(observed: Observed, call: Callable[[], Awaitable[None]]) -> float:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await call()
    return loop.time() - began_s


async def test_waiting_for_a_listing_means_one_that_begins_later(observed: Observed) -> None:
    await observed.start()
    hold = observed.runtime.hold("list_containers")
    await hold.reached.wait()
    await observed.container(pod())
    waiting = loops.spawn(observed.pleg.after_listing(UID), name="waiting")
    hold.release()
    await waiting
    assert observed.state() is ContainerState.RUNNING


async def test_removed_ids_do_not_come_back_from_an_older_listing(observed: Observed) -> None:
    made = await observed.container(pod())
    await observed.start()
    await observed.runtime.remove_container(made)
    observed.pleg.forget(UID, made)
    assert observed.state() is None
    await asyncio.sleep(3)
    assert observed.state() is None


async def test_rows_without_our_labels_are_not_ours(observed: Observed, tmp_path: Path) -> None:
    await observed.runtime.run_sandbox(SandboxSpec("foreign", "x", "foreign-uid"))
    await observed.start()
    assert observed.registry.views() == {}
