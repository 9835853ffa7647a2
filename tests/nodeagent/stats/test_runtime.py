"""Pods as the runtime measures them, and what happens when it does not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from nodeagent.metrics.containerstats import render_container_metrics
from nodeagent.psi import Pressure, PressureLine
from nodeagent.runtime.base import (
    ContainerUsage,
    InterfaceUsage,
    RuntimeNotSupported,
    RuntimeUnavailable,
    SandboxUsage,
)
from nodeagent.stats import runtime as stats_runtime
from nodeagent.stats.runtime import RuntimeStatsLoop, usage_network, usage_sample
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.summary import build_summary
from tests.fakes import hosts
from tests.fakes.hosts import POD

TIME_NS = 1_800_000_000_000_000_000
LINE = PressureLine(1.5, 0.5, 0.25, 1234)


def usage_of(container_id: str, cpu_ns: int | None) -> ContainerUsage:
    return ContainerUsage(
        id=container_id,
        name="web",
        labels={},
        cpu_usage_core_ns=cpu_ns,
        cpu_timestamp_ns=TIME_NS,
        memory_working_set_bytes=1000,
        memory_usage_bytes=2000,
        writable_layer_used_bytes=None,
        writable_layer_inodes_used=None,
        cpu_usage_nano_cores=250,
        memory_available_bytes=3000,
        memory_rss_bytes=500,
        page_faults=70,
        major_page_faults=7,
        swap_available_bytes=40,
        swap_usage_bytes=2,
        cpu_pressure=Pressure(LINE, LINE),
    )


class Runtime:
    """The one call that matters here."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.memory_available_bytes = 3000

    async def sandbox_usage(self) -> Sequence[SandboxUsage]:
        if self.error:
            raise self.error
        interfaces = (InterfaceUsage("eth0", 100, 0, 200, None),)
        total = usage_of("5a9b3e", 9_000_000)
        container = usage_of("4f1c2d", 5_000_000)
        containers = (replace(container, memory_available_bytes=self.memory_available_bytes),)
        return [SandboxUsage("shop", POD.uid, total, TIME_NS, interfaces, 4, containers)]


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
async def sampler(runtime: Runtime):
    loop = RuntimeStatsLoop(runtime)  # type: ignore[arg-type]
    sources = hosts.sources(hosts.TREES / "v2")
    sampler = Sampler(targets=lambda: [POD], sources=sources, measured=loop.latest)
    sampler.test_loop = loop  # type: ignore[attr-defined]
    yield sampler
    await sampler.close()


def test_what_is_available_and_used_together_is_the_limit() -> None:
    sample = usage_sample(usage_of("c", 5))
    assert (sample.limits.memory_bytes, sample.limits.swap_bytes) == (4000, 42)


def test_zero_available_bytes_mean_no_limit_as_containerd_reports_it() -> None:
    sample = usage_sample(replace(usage_of("c", 5), memory_available_bytes=0))
    assert sample.limits.memory_bytes is None


def test_a_network_without_a_stamp_takes_the_pod_s() -> None:
    total = usage_of("5a9b3e", 5)
    usage = SandboxUsage("shop", POD.uid, total, 0, (InterfaceUsage("eth0", 1, 0, 2, 0),), 4, ())
    network = usage_network(usage)
    assert network and network.time_ns == TIME_NS


def test_what_the_runtime_does_not_report_stays_unknown() -> None:
    nothing = ContainerUsage("c", "web", {}, None, TIME_NS, None, None, None, None)
    sample = usage_sample(nothing)
    assert sample.cpu is sample.memory is sample.cpu_pressure is None
    assert sample.limits.memory_bytes is None


async def test_the_summary_has_the_runtimes_numbers_under_the_same_names(sampler: Sampler) -> None:
    await sampler.test_loop.step()  # type: ignore[attr-defined]
    (pod,) = build_summary(await sampler.sample(), None, node_name="n")["pods"]
    assert pod["cpu"]["usageCoreNanoSeconds"] == 9_000_000
    assert pod["process_stats"] == {"process_count": 4}
    assert pod["network"]["interfaces"] == [
        {"name": "eth0", "rxBytes": 100, "rxErrors": 0, "txBytes": 200}
    ]
    (container,) = pod["containers"]
    assert container["cpu"]["usageNanoCores"] == 250
    assert container["cpu"]["psi"]["some"]["total"] == 1234, "microseconds"
    assert container["memory"]["availableBytes"] == 3000
    assert container["swap"]["swapAvailableBytes"] == 40


async def test_the_metrics_show_the_same_numbers_and_no_others(sampler: Sampler) -> None:
    await sampler.test_loop.step()  # type: ignore[attr-defined]
    page = render_container_metrics(await sampler.sample()).decode()
    lines = [line for line in page.splitlines() if 'container="web"' in line]
    assert any(line.startswith("container_memory_rss{") and " 500 " in line for line in lines)
    assert not any(line.startswith("container_memory_cache{") for line in lines)
    assert f'pod="{POD.name}",interface="eth0"}} 100 ' in page, "with the pod: there is no sandbox"
    assert "None" not in page


@pytest.mark.parametrize(("available_bytes", "shown"), [(3000, {"memory": "4000"}), (0, {})])
async def test_a_limit_that_the_runtime_does_not_report_is_omitted_rather_than_unlimited(
    sampler: Sampler, runtime: Runtime, available_bytes: int, shown: dict[str, str]
) -> None:
    runtime.memory_available_bytes = available_bytes
    await sampler.test_loop.step()  # type: ignore[attr-defined]
    page = render_container_metrics(await sampler.sample()).decode()
    found = re.findall(r'container_(spec_|threads_max)(\w*){container="web".*} (\d+)\n', page)
    limits = {name.removesuffix("_limit_bytes"): value for _, name, value in found}
    assert limits == {**shown, "memory_swap": "42"}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeNotSupported("ListPodSandboxStats", "unknown method"), "measures no pods"),
        (RuntimeUnavailable("ListPodSandboxStats", "no such socket"), "no such socket"),
    ],
)
async def test_without_an_answer_the_cgroups_are_read_and_it_is_logged_once(
    sampler: Sampler,
    runtime: Runtime,
    error: Exception,
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime.error = error
    await sampler.test_loop.step()  # type: ignore[attr-defined]
    await sampler.test_loop.step()  # type: ignore[attr-defined]
    (pod,) = (await sampler.sample()).pods
    assert pod.cgroup and pod.cgroup.cpu and pod.cgroup.cpu.usage_nsec == 123456789000
    (line,) = [line for line in caplog.messages if said in line]
    assert "cgroups are read instead" in line


async def test_an_old_answer_is_used_for_a_minute_and_the_log_says_so(
    sampler: Sampler,
    runtime: Runtime,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await sampler.test_loop.step()  # type: ignore[attr-defined]
    runtime.error = RuntimeUnavailable("ListPodSandboxStats", "gone")
    await sampler.test_loop.step()  # type: ignore[attr-defined]
    assert (await sampler.sample()).pods[0].process_count == 4
    assert "cgroups are read once its last numbers are a minute old" in caplog.text
    monkeypatch.setattr(stats_runtime, "MAX_AGE_S", -1.0)
    assert (await sampler.sample()).pods[0].process_count is None


async def test_a_call_that_hangs_is_given_up_until_the_next_step(
    sampler: Sampler, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs() -> Sequence[SandboxUsage]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(runtime, "sandbox_usage", hangs)
    monkeypatch.setattr(stats_runtime, "DEADLINE_S", 0.01)
    await sampler.test_loop.step()  # type: ignore[attr-defined]
    assert (await sampler.sample()).pods[0].cgroup
