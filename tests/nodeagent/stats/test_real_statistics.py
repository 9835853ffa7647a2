"""A busy pod on a real containerd: the summary's numbers against three independent readings.

The kernel's own files, the runtime's ListContainerStats, and the load itself, which is known: half
a core, a file of known size in a volume, lines of known size in a log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nodeagent.metrics.containerstats import render_container_metrics
from nodeagent.runtime.base import ContainerUsage
from nodeagent.stats.cgroup.layout import detect_layout
from nodeagent.stats.runtime import RuntimeDiskLoop, RuntimeStatsLoop
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import CgroupSample
from nodeagent.stats.sources import Sources
from nodeagent.stats.summary import build_summary
from tests.conftest_runtime import RealRuntime
from tests.fakes.realpods import Agent, manifest

pytestmark = [pytest.mark.real, pytest.mark.seconds(25)]

BUSY = (
    "dd if=/dev/zero of=/scratch/file bs=1M count=20 2>/dev/null; echo ready; while :; do :; done"
)
MIB = 2**20


@pytest_asyncio.fixture
async def agent(tmp_path: Path, real_runtime: RealRuntime) -> AsyncIterator[Agent]:
    agent = Agent(tmp_path, real_runtime.endpoint)
    agent.start()
    agent.put(
        manifest(
            "busy",
            {
                "name": "burner",
                "command": ["sh", "-c", BUSY],
                "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}},
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            },
            {"name": "idle"},
            volumes=[{"name": "scratch", "emptyDir": {}}],
        )
    )
    await agent.runs("busy")
    await agent.until(lambda: any(agent.directory.glob("root/pods/*/volumes/empty-dir/*/file")))
    yield agent
    await agent.close()


def sampler_of(agent: Agent, **more: Any) -> Sampler:
    return Sampler(targets=agent.registry.targets, sources=Sources(**more))


def named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)


async def summary_after(sampler: Sampler, seconds: float) -> dict[str, Any]:
    """A summary whose rates cover the given time."""
    await sampler.step()
    await asyncio.sleep(seconds)
    sample = await sampler.fresh(max_age_s=0)
    return build_summary(sample, sampler.base_of(sample), node_name="real")


@pytest.mark.may_block
async def test_a_busy_pod_is_measured_right(agent: Agent) -> None:
    disks = RuntimeDiskLoop(agent.runtime)
    await layers_known(disks, 2)
    sampler = sampler_of(agent, runtime_disks=lambda: disks.latest)
    await sampler.sample()
    await sampler.step_disks()
    begun_s, burnt_ns = time.monotonic(), cpu_ns(sampler, "burner")
    summary = await summary_after(sampler, 3)
    kernels = (cpu_ns(sampler, "burner") - burnt_ns) / 1e9 / (time.monotonic() - begun_s)
    (pod,) = summary["pods"]
    burner, idle = named(pod["containers"], "burner"), named(pod["containers"], "idle")

    cores = burner["cpu"]["usageNanoCores"] / 1e9
    assert 0 < kernels <= 0.55, "half a core, or less on a machine that is busy"
    assert cores == pytest.approx(kernels, abs=0.15)
    assert idle["cpu"]["usageNanoCores"] / 1e9 < 0.2
    assert burner["memory"]["availableBytes"] + burner["memory"]["workingSetBytes"] == 64 * MIB
    if "psi" in burner["cpu"]:
        assert waited_usec(sampler, "burner") > 300_000, "at half a core it waits half of 3 s"

    volume = named(pod["volume"], "scratch")
    assert 20 * MIB <= volume["usedBytes"] < 21 * MIB
    assert 0 < burner["logs"]["usedBytes"] < MIB, "one line"
    assert burner["rootfs"]["usedBytes"] < MIB, "the file lies in the volume"
    assert pod["ephemeral-storage"]["usedBytes"] >= volume["usedBytes"]
    assert pod["network"]["name"] == "eth0" or "network" not in pod
    image_fs = summary["node"]["runtime"]["imageFs"]
    assert image_fs["capacityBytes"] > image_fs["usedBytes"] >= 0, "counted by the runtime, later"

    pids = sum(len(Path(path).read_text().split()) for path in procs_of(agent))
    assert abs(pod["process_stats"]["process_count"] - pids) <= 2, "sleeps come and go"
    await sampler.close()


async def layers_known(disks: RuntimeDiskLoop, count: int) -> None:
    """Until the runtime, which looks every ten seconds, has looked at that many layers."""
    async with asyncio.timeout(30):
        while len(disks.latest.writable_layers) < count:
            await disks.step()
            await asyncio.sleep(0.5)


def cpu_ns(sampler: Sampler, name: str) -> int:
    """What the container has used, by the kernel's own file."""
    assert sampler.latest
    pods = sampler.latest.pods
    path = next(c.path for pod in pods for c in pod.containers if c.target.name == name)
    host = sampler.reader.layout
    if host.version == "v2":
        usage = Path(f"{host.unified}{path}/cpu.stat").read_text().split()
        return int(usage[usage.index("usage_usec") + 1]) * 1000
    return int(Path(f"{host.controllers['cpuacct']}{path}/cpuacct.usage").read_text())


def waited_usec(sampler: Sampler, name: str) -> int:
    """How long the container waited for a cpu between the last two readings."""
    assert sampler.latest
    totals = [
        container.cgroup.cpu_pressure.some.total_usec
        for sample in (sampler.base_of(sampler.latest), sampler.latest)
        for pod in (sample.pods if sample else ())
        for container in pod.containers
        if container.target.name == name and container.cgroup and container.cgroup.cpu_pressure
    ]
    before, after = totals
    return after - before


def procs_of(agent: Agent) -> list[str]:
    host = detect_layout("/sys/fs/cgroup")
    root = host.unified if host.version == "v2" else host.controllers["pids"]
    return [str(path) for path in Path(f"{root}{agent.cgroup}").glob("**/pod*/*/cgroup.procs")]


@pytest.mark.may_block
async def test_the_runtime_and_the_kernel_s_files_agree(agent: Agent) -> None:
    sampler = sampler_of(agent)
    until_s = time.monotonic() + 30  # runc's memory is released only after the containers started
    while True:
        before = {one.id: one for one in await agent.runtime.container_usage()}
        sample = await sampler.sample()
        after = {one.id: one for one in await agent.runtime.container_usage()}
        (pod,) = sample.pods
        held = []
        for container in pod.containers:
            ours, id_ = container.cgroup, container.target.id
            assert ours and ours.cpu and ours.memory
            assert_in_between(ours, before[id_], after[id_])
            held += [
                (ours.memory.usage_bytes, after[id_].memory_usage_bytes),
                (ours.memory.working_set_bytes, after[id_].memory_working_set_bytes),
                (ours.memory.rss_bytes, after[id_].memory_rss_bytes),
            ]
        assert all(mine is not None for mine, _ in held)
        if all(theirs is None or abs(mine - theirs) < 2 * MIB for mine, theirs in held):
            break
        assert time.monotonic() < until_s, held
    await sampler.close()


def assert_in_between(ours: CgroupSample, first: ContainerUsage, last: ContainerUsage) -> None:
    """Counters that were read between the runtime's two readings."""
    assert ours.cpu and first.cpu_usage_core_ns is not None and last.cpu_usage_core_ns is not None
    assert first.cpu_usage_core_ns <= ours.cpu.usage_nsec <= last.cpu_usage_core_ns
    if ours.cpu_pressure and first.cpu_pressure and last.cpu_pressure:
        total = ours.cpu_pressure.some.total_usec
        assert first.cpu_pressure.some.total_usec <= total + 1
        assert total <= last.cpu_pressure.some.total_usec + 1


@pytest.mark.may_block
async def test_numbers_from_the_runtime_fill_the_same_summary(agent: Agent) -> None:
    loop = RuntimeStatsLoop(agent.runtime)
    from_runtime = Sampler(targets=agent.registry.targets, sources=Sources(), measured=loop.latest)
    from_kernel = sampler_of(agent)
    until_s = time.monotonic() + 30  # runc's memory is released only after the containers started
    while True:
        await loop.step()
        theirs = build_summary(await from_runtime.sample(), None, node_name="real")["pods"][0]
        ours = build_summary(await from_kernel.sample(), None, node_name="real")["pods"][0]
        pairs = [
            [named(pod["containers"], n) for pod in (theirs, ours)] for n in ("burner", "idle")
        ]
        assert all(t["cpu"]["usageCoreNanoSeconds"] <= o["cpu"]["usageCoreNanoSeconds"]
                   for t, o in pairs)  # fmt: skip
        held = [[c["memory"]["workingSetBytes"] for c in pair] for pair in pairs]
        if all(abs(their - our) < 2 * MIB for their, our in held):
            break
        assert time.monotonic() < until_s, held
    await from_runtime.close()
    await from_kernel.close()
    assert theirs["podRef"] == ours["podRef"] and theirs["startTime"] == ours["startTime"]


@pytest.mark.may_block
async def test_every_cgroup_of_the_pod_is_on_the_page(agent: Agent) -> None:
    sampler = sampler_of(agent)
    page = render_container_metrics(await sampler.sample()).decode()
    name = f'pod="busy-{agent.node}"'
    shown = {
        line.partition('container="')[2].partition('"')[0]
        for line in page.splitlines()
        if line.startswith("container_memory_working_set_bytes") and name in line
    }
    assert shown == {"", "POD", "burner", "idle"}
    throttled = [
        line for line in page.splitlines() if line.startswith("container_cpu_cfs_periods_total")
    ]
    assert any('container="burner"' in line for line in throttled)
    assert not any('container="idle"' in line for line in throttled)
    await sampler.close()
