"""The summary's fields, from captured hosts and from hand-made samples (nodeagent facts §1)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.psi import Pressure, PressureLine
from nodeagent.stats.sampler import Sampler
from nodeagent.stats.samples import (
    CgroupSample,
    ContainerSample,
    ContainerTarget,
    CpuSample,
    FsSample,
    MemorySample,
    NodeSample,
    PodSample,
    Sample,
    SystemPart,
    SystemSample,
    VolumeSample,
    VolumeTarget,
)
from nodeagent.stats.summary import build_summary, rate_nanocores
from tests.fakes import hosts
from tests.fakes.hosts import LAYOUTS, POD, Clock

NOW = 1_800_000_000_000_000_000
STAMP = "2027-01-15T08:00:00Z"


async def sample_of(layout: str, root: Path) -> Sample:
    parts = (SystemPart("pods", "/orchpods/pod7d1f6c1e", NOW),)
    sources = hosts.sources(root, wall_ns=Clock(NOW), system_parts=lambda: parts)
    sampler = Sampler(targets=lambda: [POD], sources=sources)
    sample = await sampler.sample()
    await sampler.close()
    return sample


async def summary_of(layout: str, **more: Any) -> dict[str, Any]:
    sample = await sample_of(layout, hosts.TREES / layout)
    return build_summary(sample, None, node_name="node-a", **more)


async def test_a_v2_host_fills_every_field_of_the_node() -> None:
    node = (await summary_of("v2"))["node"]
    assert node["nodeName"] == "node-a"
    assert node["startTime"].endswith("Z")
    assert node["cpu"]["usageCoreNanoSeconds"] == 123456789000
    assert node["cpu"]["time"] == STAMP
    memory = node["memory"]
    assert memory["workingSetBytes"] == 20971520 + 12582912 - 4194304
    assert memory["availableBytes"] == 16384000 * 1024 - memory["workingSetBytes"]
    assert node["swap"] == {"time": STAMP, "swapAvailableBytes": 2**30, "swapUsageBytes": 2**30}
    assert (node["network"]["name"], node["network"]["rxErrors"]) == ("eth0", 1)
    assert [one["name"] for one in node["network"]["interfaces"]] == ["eth0", "eth1"]
    assert {"availableBytes", "capacityBytes", "usedBytes"} <= node["fs"].keys()
    assert node["rlimit"]["maxpid"] == 32768 and node["rlimit"]["curproc"] > 0
    assert {"some", "full"} == node["io"]["psi"].keys()
    (pods,) = node["systemContainers"]
    assert (pods["name"], pods["startTime"]) == ("pods", STAMP)
    assert pods["memory"]["rssBytes"] == 20971520


async def test_a_v2_pod_and_its_container_have_all_their_parts() -> None:
    (pod,) = (await summary_of("v2"))["pods"]
    assert pod["podRef"] == {"name": "web-0", "namespace": "shop", "uid": "7d1f6c1e"}
    assert pod["startTime"] == "2026-09-21T14:13:19Z"
    assert pod["process_stats"] == {"process_count": 6}, "container and sandbox, three each"
    assert (pod["network"]["name"], pod["network"]["txBytes"]) == ("eth0", 8191523)
    (container,) = pod["containers"]
    assert container["name"] == "web"
    assert container["memory"] == {
        "time": STAMP,
        "availableBytes": 268435456 - (34603008 - 4194304),
        "usageBytes": 34603008,
        "workingSetBytes": 34603008 - 4194304,
        "rssBytes": 20971520,
        "pageFaults": 5000,
        "majorPageFaults": 12,
        "psi": {
            "some": {"total": 2000123, "avg10": 1.02, "avg60": 0.5, "avg300": 0.1},
            "full": {"total": 2000045, "avg10": 0.02, "avg60": 0.25, "avg300": 0.05},
        },
    }
    assert container["swap"]["swapAvailableBytes"] == 134217728 - 1048576
    assert container["io"]["psi"]["some"]["total"] == 3000123


async def test_values_that_the_kernel_does_not_report_are_absent() -> None:
    summary = await summary_of("v1")
    text = orjson.dumps(summary)
    assert b"psi" not in text and b'"io"' not in text, "v1 has no pressure"
    assert b"null" not in text
    (pod,) = summary["pods"]
    assert "availableBytes" not in pod["memory"], "the pod has no limit"
    assert "usageNanoCores" not in pod["cpu"], "one sample gives no rate"


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_cpu_and_memory_only_omits_everything_else(layout: str) -> None:
    summary = await summary_of(layout, only_cpu_and_memory=True)
    assert summary["node"].keys() == {
        "nodeName",
        "startTime",
        "systemContainers",
        "cpu",
        "memory",
        "swap",
    }
    (pod,) = summary["pods"]
    assert pod.keys() - {"swap"} == {"podRef", "startTime", "containers", "cpu", "memory"}
    (container,) = pod["containers"]
    assert container.keys() - {"swap"} == {"name", "startTime", "cpu", "memory"}
    assert ("psi" in container["cpu"]) == (layout != "v1")


async def test_the_feature_gate_takes_pressure_out_everywhere() -> None:
    assert b"psi" not in orjson.dumps(await summary_of("v2", psi=False))


async def test_a_pod_without_a_start_time_is_shown_only_when_cpu_alone_is_requested() -> None:
    sample = await sample_of("v2", hosts.TREES / "v2")
    young = PodSample(dataclasses.replace(POD, started_at_ns=0), sample.pods[0].cgroup)
    sample = dataclasses.replace(sample, pods=(young,))
    assert build_summary(sample, None, node_name="n")["pods"] == []
    (shown,) = build_summary(sample, None, node_name="n", only_cpu_and_memory=True)["pods"]
    assert "startTime" not in shown


def test_an_unknown_start_time_is_omitted() -> None:
    container = _container(dataclasses.replace(hosts.CONTAINER, started_at_ns=0))
    system = SystemSample("misc", 0, CgroupSample(NOW))
    sample = Sample(NOW, NodeSample(system=(system,)), (PodSample(POD, containers=(container,)),))
    summary = build_summary(sample, None, node_name="n")
    (pod,) = summary["pods"]
    parts = [summary["node"], summary["node"]["systemContainers"][0], pod["containers"][0]]
    assert not any("startTime" in part for part in parts)
    assert pod["startTime"] == "2026-09-21T14:13:19Z"


def test_no_pods_are_an_empty_list() -> None:
    assert build_summary(Sample(NOW), None, node_name="n")["pods"] == []


@pytest.mark.parametrize(
    ("time_ns", "usage_ns", "expected"),
    [
        (NOW + 10_000_000_000, 6_000_000_000, 500_000_000),  # half a core for ten seconds
        (NOW + 10_000_000_000, 1_000_000_000, 0),
        (NOW + 10_000_000_000, 999_999_999, None),  # the counter went backwards
        (NOW, 2_000_000_000, None),  # no time passed
        (NOW - 1, 2_000_000_000, None),
    ],
)
def test_a_rate_is_cpu_time_by_time(time_ns: int, usage_ns: int, expected: int | None) -> None:
    base = CgroupSample(NOW, CpuSample(1_000_000_000))
    assert rate_nanocores(CgroupSample(time_ns, CpuSample(usage_ns)), base) == expected


async def test_rates_appear_for_node_parts_pods_and_containers_alike() -> None:
    first = await sample_of("v2", hosts.TREES / "v2")

    def later(sample: CgroupSample | None) -> CgroupSample | None:
        if sample is None or sample.cpu is None:
            return None
        cpu = sample.cpu._replace(usage_nsec=sample.cpu.usage_nsec + 5_000_000_000)
        return sample._replace(time_ns=sample.time_ns + 10_000_000_000, cpu=cpu)

    pod = first.pods[0]
    container = pod.containers[0]
    second = dataclasses.replace(
        first,
        node=dataclasses.replace(
            first.node,
            cgroup=later(first.node.cgroup),
            system=tuple(p._replace(cgroup=later(p.cgroup)) for p in first.node.system),
        ),
        pods=(
            pod._replace(
                cgroup=later(pod.cgroup),
                containers=(container._replace(cgroup=later(container.cgroup)),),
            ),
        ),
    )
    summary = build_summary(second, first, node_name="n")
    node, (new_pod,) = summary["node"], summary["pods"]
    parts = [node, node["systemContainers"][0], new_pod, new_pod["containers"][0]]
    assert [part["cpu"]["usageNanoCores"] for part in parts] == [500_000_000] * 4


def test_ephemeral_storage_sums_layers_logs_and_the_pods_own_volumes() -> None:
    def fs(time_ns: int, used: int, inodes: int) -> FsSample:
        return FsSample(time_ns, used_bytes=used, inodes_used=inodes, capacity_bytes=10**9)

    base = PodSample(POD)
    container = hosts.CONTAINER
    volume = VolumeTarget("cache", "/v/cache", "emptyDir")
    host = VolumeTarget("host", "/", "hostPath")
    pod = base._replace(
        containers=(_container(container, rootfs=fs(NOW, 100, 10), logs=fs(NOW + 10**9, 20, 1)),),
        volumes=(
            VolumeSample(volume, fs(NOW, 3, 2)),
            VolumeSample(volume._replace(in_memory=True), fs(NOW, 6000, 60)),
            VolumeSample(host, fs(NOW, 5000, 5000)),
        ),
        logs=fs(NOW, 400, 4),
    )
    node_fs = FsSample(NOW, 700, 1000, 300, 70, 100, 30)
    sample = Sample(NOW, NodeSample(fs=node_fs), (pod,))
    (out,) = build_summary(sample, None, node_name="n")["pods"]
    assert out["ephemeral-storage"] == {
        "time": "2027-01-15T08:00:01Z",
        "availableBytes": 700,
        "capacityBytes": 1000,
        "usedBytes": 100 + 20 + 3 + 400,
        "inodesFree": 70,
        "inodes": 100,
        "inodesUsed": 10 + 2 + 4,
    }
    assert [volume["name"] for volume in out["volume"]] == ["cache", "cache", "host"]


def test_a_sum_beyond_64_bits_is_absent() -> None:
    absurd = FsSample(NOW, used_bytes=2**64 - 1, inodes_used=1)
    pod = PodSample(POD, containers=(_container(hosts.CONTAINER, rootfs=absurd, logs=absurd),))
    summary = build_summary(Sample(NOW, NodeSample(), (pod,)), None, node_name="n")
    assert orjson.loads(orjson.dumps(summary)) == summary
    assert summary["pods"][0]["ephemeral-storage"]["inodesUsed"] == 1
    assert "usedBytes" not in summary["pods"][0]["ephemeral-storage"]


def _container(target: ContainerTarget, **parts: FsSample) -> ContainerSample:
    return ContainerSample(target, CgroupSample(NOW), **parts)


_MAYBE = st.none() | st.integers(0, 2**64 - 1)
_MEMORY = st.builds(MemorySample, *[_MAYBE] * 14)
_LINES = st.builds(
    PressureLine, *[st.floats(0, 100, allow_nan=False)] * 3, st.integers(0, 2**64 - 1)
)
_PRESSURES = st.none() | st.builds(Pressure, _LINES, st.none() | _LINES)
_CGROUPS = st.builds(
    lambda time_ns, cpu, memory, psi: CgroupSample(time_ns, cpu, memory, io_pressure=psi),
    st.integers(0, 2**62),
    st.none() | st.builds(lambda usage_ns: CpuSample(usage_ns), st.integers(0, 2**64 - 1)),
    st.none() | _MEMORY,
    _PRESSURES,
)


@given(_CGROUPS, st.none() | _CGROUPS)
def test_any_sample_becomes_a_body_that_can_be_encoded(
    latest: CgroupSample, base: CgroupSample | None
) -> None:
    sample = Sample(NOW, NodeSample(cgroup=latest), (PodSample(POD, latest),))
    previous = Sample(NOW, NodeSample(cgroup=base), (PodSample(POD, base),))
    body = build_summary(sample, previous, node_name="n")
    assert b"null" not in orjson.dumps(body)
