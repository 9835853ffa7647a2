"""Pressure triggers: on this machine's kernel where it can, on captured trees for the rest."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.stats.cgroup.layout import detect_layout
from nodeagent.stats.samples import CgroupSample, ContainerSample, PodSample
from nodeagent.triggers import PressureTriggers, Stall, Trigger, TriggerRule
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
    """Of the kinds that a trigger has; those that other tests have left may close meanwhile."""
    gc.collect()
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = os.readlink(entry)
            found += "pressure" in target or target in ("anon_inode:[eventpoll]", os.devnull)
    return found


@pytest.fixture
def busy() -> Iterator[None]:
    """More to compute than there are processors."""
    count = 2 * (os.cpu_count() or 1) + 1
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


def test_a_rule_is_written_in_microseconds_with_a_final_nul() -> None:
    assert rule("node", threshold_s=0.15).text() == b"some 150000 2000000\0"
    assert str(rule("node", threshold_s=0.15)) == "cpu pressure (some) above 0.15s of 2s"


@pytest.mark.real
@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/proc/pressure/cpu").exists(),
    reason="pressure triggers need root and a kernel with PSI",
)
async def test_the_kernel_reports_a_stalled_node_without_polling(busy: None) -> None:
    told: asyncio.Queue[Stall] = asyncio.Queue()
    before = open_descriptors()
    watch = PressureTriggers([rule("node")], pods=lambda: (), report=told.put_nowait, cgroups=None)
    await watch.step()
    assert open_descriptors() == before + 2
    async with asyncio.timeout(15):
        stall = await told.get()
        await told.get()
    assert stall == Stall(rule("node"))
    assert watch.counts["cpu", "some", "node"] >= 2  # another may have fired by now
    watch.close()
    assert open_descriptors() == before


@pytest.mark.skipif(not Path("/proc/pressure/cpu").exists(), reason="this kernel has no PSI")
async def test_a_quiet_trigger_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = rule("node", resource="memory", level="full", threshold_s=1.9)
    watch = PressureTriggers([quiet], pods=lambda: (), report=print, cgroups=None)
    calls: list[int] = []
    loop = asyncio.get_running_loop()
    add_reader = loop.add_reader
    monkeypatch.setattr(loop, "add_reader", lambda fd, *_: add_reader(fd, calls.append, 1))
    await watch.step()
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert calls == [], "a loop that watched the file itself would spin"
    watch.close()


class Kernel:
    """Arms a trigger for any path."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def arm(self, path: str, text: bytes) -> Trigger:
        self.paths.append(path)
        return Trigger(os.open(os.devnull, os.O_RDONLY), select.epoll())


async def test_every_pod_and_container_has_a_trigger_until_it_is_gone() -> None:
    kernel, pods, before = Kernel(), list(PODS), open_descriptors()
    rules = [rule("pod"), rule("container", resource="io")]
    watch = PressureTriggers(rules, pods=lambda: pods, report=print, cgroups="/c", arm=kernel.arm)
    await watch.step()
    await watch.step()
    assert kernel.paths == [
        f"/c{CONTAINER_CGROUP}/io.pressure",
        f"/c{POD_CGROUP}/cpu.pressure",
    ], "each of them once"
    pods.clear()
    assert open_descriptors() == before + 4
    await watch.step()
    assert open_descriptors() == before


async def test_a_host_without_a_v2_tree_watches_its_node_only() -> None:
    kernel, rules = Kernel(), [rule("pod"), rule("node")]
    watch = PressureTriggers(rules, pods=lambda: PODS, report=print, cgroups=None, arm=kernel.arm)
    await watch.step()
    assert kernel.paths == ["/proc/pressure/cpu"]
    watch.close()


@pytest.mark.parametrize("window_s", [3.0, 20.0])
@pytest.mark.skipif(not Path("/proc/pressure/cpu").exists(), reason="this kernel has no PSI")
async def test_a_refusal_by_the_kernel_is_logged_once(
    window_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    allowed = window_s == 3.0 and _has_sys_resource()  # nobody may use more than ten seconds
    asked = rule("node", window_s=window_s)
    watch = PressureTriggers([asked], pods=lambda: (), report=print, cgroups=None)
    before = open_descriptors()
    await watch.step()
    await watch.step()
    assert open_descriptors() - before == (2 if allowed else 0)
    said = ["multiple of 2s" in message for message in caplog.messages]
    assert said == ([] if allowed else [True])
    watch.close()


async def test_a_file_that_cannot_be_polled_is_logged_and_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pressure = tmp_path / "pressure" / "cpu"
    pressure.parent.mkdir()
    pressure.touch()  # a plain file takes what is written to it and is refused by epoll
    watch = PressureTriggers(
        [rule("node")], pods=lambda: (), report=print, cgroups=None, proc_root=str(tmp_path)
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


async def test_a_missing_file_of_the_node_is_logged_a_missing_cgroup_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    rules = [rule("node"), rule("pod")]
    watch = PressureTriggers(
        rules, pods=lambda: PODS, report=print, cgroups=str(tmp_path), proc_root=str(tmp_path)
    )
    await watch.step()
    assert len(caplog.messages) == 1 and "no such pressure file" in caplog.messages[0]


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/sys/fs/cgroup").exists(), reason="making cgroups needs root"
)
async def test_the_trigger_of_a_removed_cgroup_is_closed() -> None:
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
        [rule("pod")], pods=lambda: pods, report=told.append, cgroups=host.unified
    )
    try:
        await watch.step()
        assert open_descriptors() == before + 2
    finally:
        directory.rmdir()
    async with asyncio.timeout(10):
        while open_descriptors() > before:
            await asyncio.sleep(0.01)
    assert told == [], "its end is no stall"
    assert open_descriptors() == before
