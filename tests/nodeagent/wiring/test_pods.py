"""The parts that keep pods, by what there is: a runtime, an API, manifests in files or at a URL."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.pods.spec.dns import DnsSettings
from nodeagent.pods.spec.policy import ResourcePolicy
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.sources import Sources
from nodeagent.wiring import pods
from nodeagent.wiring.base import Base, resource_policy
from nodeagent.wiring.pods import Pods
from orch.component.flags.features import Features
from orch.component.process import loops
from tests.fakes.api import FakeApi
from tests.fakes.runtime import FakeRuntime
from tests.fakes.runtime_images import IMAGES
from tests.nodeagent.wiring.conftest import BuildBase

pytestmark = pytest.mark.may_block  # the machine's facts are read before anything is served

STATIC = {"staticPodPath": "/manifests", "staticPodURL": "https://pods.example/all"}


def build(base: Base) -> Pods | None:
    source = pods.build_api_source(base)
    sampler = Sampler(targets=tuple, sources=Sources())
    return pods.build_pods(base, sampler, source, pods.build_events(base, source), None)


def sources(base: Base) -> list[str]:
    found = pods.build_sources(base, pods.build_api_source(base))
    return [source.name for source in found]


async def test_without_a_runtime_nothing_keeps_pods(base: BuildBase) -> None:
    assert build(base(api=FakeApi(), **STATIC)) is None


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, []),
        ({"staticPodPath": "/manifests"}, ["file"]),
        ({"staticPodURL": "https://pods.example/all"}, ["http"]),
        (STATIC, ["file", "http"]),
    ],
)
async def test_pods_come_from_where_the_configuration_says_and_from_the_api(
    base: BuildBase, config: dict[str, str], expected: list[str]
) -> None:
    assert sources(base(FakeRuntime(), **config)) == expected
    assert sources(base(FakeRuntime(), FakeApi(), **config)) == [*expected, "api"]


async def test_device_plugins_can_be_turned_off(base: BuildBase) -> None:
    usual, without = build(base(FakeRuntime())), build(base(FakeRuntime(), devicePlugins=False))
    assert usual and usual.devices and usual.pod_resources
    assert without and (without.devices, without.pod_resources) == (None, None)


async def test_only_an_api_is_told_statuses_and_given_mirrors(base: BuildBase) -> None:
    alone, with_api = build(base(FakeRuntime())), build(base(FakeRuntime(), FakeApi()))
    assert alone and with_api
    assert (alone.statuses, alone.mirrors) == (None, None)
    assert with_api.statuses and with_api.mirrors


async def test_pods_that_wait_for_the_node_are_told_when_it_is_known(base: BuildBase) -> None:
    made = base(FakeRuntime(), FakeApi())
    kept = build(made)
    assert kept and made.own_node.on_known == kept.workers.node_known


async def test_logs_are_bounded_as_configured(base: BuildBase) -> None:
    bounds = pods.log_bounds(
        base(
            containerLogMaxSize="1Mi", containerLogMaxFiles=3, containerLogMonitorInterval="30s"
        ).config
    )
    assert (bounds.max_bytes, bounds.max_files, bounds.interval_s) == (1024**2, 3, 30.0)


async def test_pods_have_the_names_and_sysctls_of_the_configuration(base: BuildBase) -> None:
    settings = base(
        FakeRuntime(), clusterDNS=["10.96.0.10"], clusterDomain="cluster.local",
        resolvConf="/run/resolv.conf", allowedUnsafeSysctls=["kernel.msg*"],
    ).settings  # fmt: skip
    assert settings.dns == DnsSettings(("10.96.0.10",), "cluster.local", "/run/resolv.conf")
    assert settings.unsafe_sysctls == ("kernel.msg*",)


@pytest.mark.parametrize(
    ("fields", "at_once"),
    [
        ({}, 1),
        ({"serializeImagePulls": False, "maxParallelImagePulls": 3}, 3),
        ({"serializeImagePulls": False}, 10),  # the burst
        ({"serializeImagePulls": False, "registryPullQPS": 0}, 15),
        ({"serializeImagePulls": False, "registryBurst": 5}, 5),
    ],
)
async def test_so_many_images_are_pulled_at_once_as_is_configured(
    fields: dict[str, object], at_once: int
) -> None:
    runtime, pulls = FakeRuntime(), pods.image_pulls(NodeAgentConfiguration.model_validate(fields))
    tasks = []
    for _ in range(15):
        runtime.hold("pull_image")
        tasks.append(loops.spawn(pulls.pull(runtime, IMAGES[0]), name="pull"))
        for _ in range(10):  # turns of the loop, in which it begins if it may
            await asyncio.sleep(0)
    assert len(runtime.called("pull_image")) == at_once
    await loops.cancel(*tasks)


@pytest.mark.parametrize(
    ("fields", "bytes_left"),
    [
        ({}, 8 << 30),
        ({"systemReserved": {"memory": "1Gi"}, "nodeagentReserved": {"memory": "2Gi"}}, 5 << 30),
        ({"systemReserved": {"memory": "9Gi"}}, None),
        ({"enforceNodeAllocatable": ["none"]}, None),
        ({"enforceNodeAllocatable": []}, None),
    ],
)
def test_pods_may_use_the_memory_that_is_not_reserved(
    fields: dict[str, object], bytes_left: int | None
) -> None:
    config = NodeAgentConfiguration.model_validate(fields)
    assert pods.memory_of_pods(config, 8 << 30) == bytes_left


@pytest.mark.parametrize(
    ("fields", "gates", "swap_file", "expected"),
    [
        ({}, {}, True, ResourcePolicy(True, swap_bytes=0, kills_groups=True)),
        ({}, {}, False, ResourcePolicy(True, swap_bytes=None, kills_groups=True)),
        (
            {"memorySwap": {"swapBehavior": "LimitedSwap"}, "singleProcessOOMKill": True},
            {},
            True,
            ResourcePolicy(True, swap_bytes=4096),
        ),
        (
            {"cpuCFSQuota": False, "cpuCFSQuotaPeriod": "20ms", "memoryThrottlingFactor": 1},
            {"MemoryQoS": True},
            False,
            ResourcePolicy(True, False, 20_000, throttling_factor=1.0, kills_groups=True),
        ),
        (
            {"memoryReservationPolicy": "TieredReservation"},
            {},
            False,
            ResourcePolicy(True, protects_memory=True, kills_groups=True),
        ),
    ],
)
def test_the_configuration_says_how_cgroups_are_set(
    tmp_path: Path,
    fields: dict[str, object],
    gates: dict[str, bool],
    swap_file: bool,
    expected: ResourcePolicy,
) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "system.slice").mkdir()
    if swap_file:
        (tmp_path / "system.slice/memory.swap.max").write_text("max\n")
    config, features = NodeAgentConfiguration.model_validate(fields), Features(gates)
    assert resource_policy(config, features, 4096, cgroup_root=tmp_path) == expected
