"""Pressure triggers: on this machine's kernel where it can, on captured trees for the rest."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent import triggers
from nodeagent.stats.cgroup.layout import detect_layout
from nodeagent.stats.samples import CgroupSample, ContainerSample, PodSample
from nodeagent.triggers import PressureTriggers, Stall, TriggerRule
from tests.fakes.hosts import CONTAINER, CONTAINER_CGROUP, POD, POD_CGROUP

NOW = CgroupSample(1)
PODS = [
    PodSample(
        POD,
        NOW,
        containers=(ContainerSample(CONTAINER, NOW, path=CONTAINER_CGROUP),),
        path=POD_CGROUP,
    )
]


def rule(scope: str, **more: object) -> TriggerRule:
    fields = {"resource": "cpu", "level": "some", "threshold_s": 0.05, "window_s": 2.0, **more}
    return TriggerRule(scope=scope, **fields)  # type: ignore[arg-type]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def busy() -> Iterator[None]:
    """More to compute than there are processors."""
    count = 2 * (os.cpu_count() or 1) + 1
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    yield
    for one in burners:
        one.kill()
        one.wait()


def test_a_rule_is_written_in_microseconds_with_a_final_nul() -> None:
    assert rule("node", threshold_s=0.15).text() == b"some 150000 2000000\0"
    assert str(rule("node", threshold_s=0.15)) == "cpu pressure (some) above 0.15s of 2s"


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/proc/pressure/cpu").exists(),
    reason="pressure triggers need root and a kernel with PSI",
)
async def test_the_kernel_tells_of_a_stalled_node_without_any_polling(busy: None) -> None:
    told: asyncio.Queue[Stall] = asyncio.Queue()
    before = open_descriptors()
    watch = PressureTriggers([rule("node")], pods=lambda: (), tell=told.put_nowait, cgroups=None)
    await watch.step()
    assert open_descriptors() == before + 2
    async with asyncio.timeout(15):
        stall = await told.get()
        await told.get()
    assert stall == Stall(rule("node"))
    assert watch.counts["cpu", "some", "node"] == 2
    watch.close()
    assert open_descriptors() == before


@pytest.mark.skipif(not Path("/proc/pressure/cpu").exists(), reason="this kernel has no PSI")
async def test_a_quiet_trigger_costs_nothing() -> None:
    quiet = rule("node", resource="memory", level="full", threshold_s=1.9)
    watch = PressureTriggers([quiet], pods=lambda: (), tell=print, cgroups=None)
    await watch.step()
    calls = []
    for trigger in watch._armed.values():
        loop = asyncio.get_running_loop()
        loop.remove_reader(trigger.epoll.fileno())
        loop.add_reader(trigger.epoll.fileno(), calls.append, 1)
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert calls == [], "a loop that watched the file itself would spin"
    watch.close()


class Kernel:
    """Arms anything below a tree of plain files, which the kernel itself would not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        self.released = 0
        monkeypatch.setattr(triggers, "_arm", self.arm)
        monkeypatch.setattr(triggers, "_release", self.release)

    def arm(self, place: triggers._Place) -> triggers._Armed:
        self.paths.append(place.path)
        return triggers._Armed(-1, triggers.select.epoll())

    def release(self, trigger: triggers._Armed) -> None:
        self.released += 1
        trigger.epoll.close()


async def test_every_pod_and_container_gets_a_trigger_and_loses_it_when_it_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, pods = Kernel(monkeypatch), list(PODS)
    rules = [rule("pod"), rule("container", resource="io")]
    watch = PressureTriggers(rules, pods=lambda: pods, tell=print, cgroups="/c")
    await watch.step()
    await watch.step()
    assert kernel.paths == [
        f"/c{CONTAINER_CGROUP}/io.pressure",
        f"/c{POD_CGROUP}/cpu.pressure",
    ], "each of them once"
    pods.clear()
    await watch.step()
    assert kernel.released == 2


async def test_a_host_without_a_v2_tree_watches_its_node_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel(monkeypatch)
    watch = PressureTriggers(
        [rule("pod"), rule("node")], pods=lambda: PODS, tell=print, cgroups=None
    )
    await watch.step()
    assert kernel.paths == ["/proc/pressure/cpu"]
    watch.close()


@pytest.mark.parametrize("window_s", [3.0, 20.0])
@pytest.mark.skipif(not Path("/proc/pressure/cpu").exists(), reason="this kernel has no PSI")
async def test_what_the_kernel_refuses_is_said_once(
    window_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    allowed = window_s == 3.0 and _has_sys_resource()  # more than ten seconds are for nobody
    asked = rule("node", window_s=window_s)
    watch = PressureTriggers([asked], pods=lambda: (), tell=print, cgroups=None)
    before = open_descriptors()
    await watch.step()
    await watch.step()
    assert open_descriptors() - before == (2 if allowed else 0)
    said = ["multiple of 2s" in message for message in caplog.messages]
    assert said == ([] if allowed else [True])
    watch.close()


async def test_a_file_that_cannot_be_waited_for_is_said_and_leaves_nothing_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pressure = tmp_path / "pressure" / "cpu"
    pressure.parent.mkdir()
    pressure.touch()  # a plain file takes what is written to it and is refused by epoll
    watch = PressureTriggers(
        [rule("node")], pods=lambda: (), tell=print, cgroups=None, proc_root=str(tmp_path)
    )
    before = open_descriptors()
    await watch.step()
    await watch.step()
    assert open_descriptors() == before
    assert len(caplog.messages) == 1 and str(pressure) in caplog.messages[0]


def _has_sys_resource() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> 24 & 1)
    return False


async def test_a_missing_file_of_the_node_is_said_a_missing_cgroup_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    rules = [rule("node"), rule("pod")]
    watch = PressureTriggers(
        rules, pods=lambda: PODS, tell=print, cgroups=str(tmp_path), proc_root=str(tmp_path)
    )
    await watch.step()
    assert len(caplog.messages) == 1 and "no such pressure file" in caplog.messages[0]


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/sys/fs/cgroup").exists(), reason="making cgroups needs root"
)
async def test_a_trigger_of_a_removed_cgroup_is_let_go() -> None:
    host = detect_layout("/sys/fs/cgroup")
    path = f"/orchtrigger-{os.getpid()}"
    directory = Path(f"{host.unified}{path}")
    if host.unified is None or not Path(host.unified, "cpu.pressure").exists():
        pytest.skip("cgroups of this machine have no pressure")
    directory.mkdir()
    pods = [PodSample(POD, NOW, path=path)]
    before = open_descriptors()
    told: list[Stall] = []
    watch = PressureTriggers(
        [rule("pod")], pods=lambda: pods, tell=told.append, cgroups=host.unified
    )
    try:
        await watch.step()
        assert open_descriptors() == before + 2
    finally:
        directory.rmdir()
    async with asyncio.timeout(10):
        while watch._armed:
            await asyncio.sleep(0.01)
    assert told == [], "its end is no stall"
    assert open_descriptors() == before
