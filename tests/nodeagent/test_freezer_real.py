"""A real containerd killed while CRIU runs leaves containers frozen; none of them stays so.

The checkpoints are made past the agent's service, as another client of the runtime makes them, so
that only the watch is there to help.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from nodeagent import freezer
from nodeagent.archives.reports import CheckpointReports
from nodeagent.freezer import CHECKS, ContainerThawer, FrozenContainerMonitor
from nodeagent.pods.observed import ActiveContainer
from nodeagent.runtime.base import ContainerState, RuntimeCallError
from nodeagent.runtime.health import RuntimeWatch
from orch.component.process import loops
from orch.component.process.loops import Periodic
from tests.conftest_runtime import RealRuntime, provisioned
from tests.nodeagent.test_checkpoint_faults_real import count_of, once_frozen
from tests.nodeagent.test_checkpoint_real import RealNode, a_real_node, wait_for_change

pytestmark = pytest.mark.seconds(40)

CRIU_ENDS_S = 30
QUICK_S = (0.1, 0.25)
BUSY_S = 30.0  # what a loaded machine may add: without the watch it stays frozen for ever
SWEEP_S = tuple(number * 0.02 for number in range(1, 41))


@pytest.fixture
def own_runtime(tmp_path: Path) -> Iterator[RealRuntime]:
    with provisioned(tmp_path / "rt") as runtime:
        yield runtime


@pytest.mark.real
async def test_no_container_stays_frozen_when_the_runtime_is_killed(
    own_runtime: RealRuntime, tmp_path: Path
) -> None:
    await sweep(own_runtime, tmp_path, QUICK_S)


@pytest.mark.real
@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_no_container_stays_frozen_whenever_the_runtime_is_killed(
    own_runtime: RealRuntime, tmp_path: Path
) -> None:
    """Over the whole duration of a checkpoint, with a fresh container each time."""
    frozen = await sweep(own_runtime, tmp_path, SWEEP_S)

    assert frozen > 0, "no kill came while a container was frozen: the sweep shows nothing"


async def sweep(real: RealRuntime, root: Path, delays_s: Sequence[float]) -> int:
    """Kill the runtime after each delay; how many containers were left frozen, and freed."""
    freed = 0
    for delay_s in delays_s:
        async with a_real_node(real.endpoint, root) as node:
            detail = await node.runtime.container_detail(node.pods.running["app"])
            await cut_off(real, node, root / "archive.tar", delay_s)
            freed += await watched(node)
            count = Path(f"/proc/{detail.pid}/root/count")
            await asyncio.to_thread(wait_for_change, count)
    return freed


async def cut_off(real: RealRuntime, node: RealNode, archive: Path, delay_s: float) -> None:
    """Begin a checkpoint, kill the runtime after a while, and start it again."""
    pid = json.loads(real.control("status"))["pids"]["containerd"]
    container_id = node.pods.running["app"]
    going = asyncio.ensure_future(
        node.runtime.checkpoint_container(container_id, location=str(archive), timeout_s=60)
    )
    await asyncio.sleep(delay_s)
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(RuntimeCallError):
        await going
    await asyncio.to_thread(real.control, "start")
    archive.unlink(missing_ok=True)


async def watched(node: RealNode) -> int:
    """What the agent's watch does, without its pauses; how many containers it freed."""
    container_id = node.pods.running["app"]
    is_frozen = partial(freezer.is_frozen, freezer.CGROUP_ROOT, container_id)
    for _ in range(CRIU_ENDS_S * 20):  # it may outlive the runtime, and thaws what it froze
        was_frozen = await asyncio.to_thread(is_frozen)
        detail = await node.runtime.container_detail(container_id)
        unknown = detail.container.state is ContainerState.UNKNOWN
        if unknown or not was_frozen:
            break
        await asyncio.sleep(0.05)

    reports = CheckpointReports()
    watch = a_watch(node, reports, silent_s=lambda: 0.0, unknown=unknown)
    for _ in range(CHECKS):
        await watch.step()
    assert not was_frozen or unknown, "a container stays frozen and its state says nothing of it"
    return reports.counts.thawed


def a_watch(
    node: RealNode,
    reports: CheckpointReports,
    *,
    silent_s: Callable[[], float],
    unknown: bool = False,
) -> FrozenContainerMonitor:
    class Pods:
        def active_containers(self, *, only_unknown: bool) -> list[ActiveContainer]:
            if only_unknown and not unknown:
                return []
            return [ActiveContainer(node.pods.running["app"], "app", None)]

    return FrozenContainerMonitor(
        Pods(), ContainerThawer(node.runtime), reports, is_busy=lambda _id: False, silent_s=silent_s
    )


@pytest.mark.real
@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_container_runs_again_fifteen_seconds_after_its_runtime_died_or_hung(
    own_runtime: RealRuntime, tmp_path: Path, kind: signal.Signals
) -> None:
    """The runtime does not come back meanwhile: nobody tells that the container is frozen."""
    async with a_real_node(own_runtime.endpoint, tmp_path) as node:
        count = await count_of(node)
        reports, asked = CheckpointReports(), RuntimeWatch(node.runtime)
        watch = a_watch(node, reports, silent_s=asked.silent_s)
        periodic = Periodic("frozen containers", watch.step, interval_s=freezer.INTERVAL_S)
        tasks = [loops.spawn(asked.run(), name="ask"), loops.spawn(periodic.run(), name="watch")]
        ended = EndedRuntime(own_runtime, node, kind)
        try:
            going = await left_frozen(node, ended, tmp_path / "archive.tar")
            async with asyncio.timeout(15 + BUSY_S):
                before = count.read_text()
                while count.read_text() in ("", before) or not reports.counts.thawed:
                    await asyncio.sleep(0.1)
        finally:
            await loops.cancel(*tasks)
            await ended.undo()
        with contextlib.suppress(RuntimeCallError):
            await going
        assert reports.counts.thawed == 1
        await asyncio.to_thread(wait_for_change, count)


class EndedRuntime:
    """Kills or stops the runtime, and has it answer again."""

    def __init__(self, runtime: RealRuntime, node: RealNode, kind: signal.Signals) -> None:
        self._runtime = runtime
        self._node = node
        self._kind = kind
        self._pid = self._find()

    def end(self) -> None:
        os.kill(self._pid, self._kind)

    def _find(self) -> int:
        return int(json.loads(self._runtime.control("status"))["pids"]["containerd"])

    async def undo(self) -> None:
        if self._kind is signal.SIGSTOP:
            os.kill(self._pid, signal.SIGCONT)
        else:
            await asyncio.to_thread(self._runtime.control, "start")
            self._pid = self._find()
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(RuntimeCallError):
                    await self._node.runtime.version()
                    return
                await asyncio.sleep(0.2)


async def left_frozen(node: RealNode, runtime: EndedRuntime, archive: Path) -> asyncio.Future[None]:
    """Begin a checkpoint, and end the runtime in a moment in which the container stays frozen.

    Now and then the end comes too late, or has CRIU let go of the container: then once more.
    """
    for _ in range(20):
        container_id = node.pods.running["app"]
        going = asyncio.ensure_future(
            node.runtime.checkpoint_container(container_id, location=str(archive), timeout_s=60)
        )
        if not await asyncio.to_thread(once_frozen, container_id, going, runtime.end):
            await going
            archive.unlink()
            continue
        await asyncio.sleep(1)
        if await asyncio.to_thread(freezer.is_frozen, freezer.CGROUP_ROOT, container_id):
            return going
        await runtime.undo()
        with contextlib.suppress(RuntimeCallError):
            await going
        archive.unlink(missing_ok=True)
    raise AssertionError("the runtime was ended many times, and never left the container frozen")
