"""Measurements of a runtime: None where nothing is reported, units converted at the edge."""

import pytest

from nodeagent.psi import Pressure, PressureLine
from nodeagent.runtime import cri_pb2 as pb
from nodeagent.runtime import cri_usage


def number(value: int) -> object:
    return pb.UInt64Value(value=value)


def test_an_empty_report_is_none_throughout_and_never_zero() -> None:
    usage = cri_usage.container_usage(pb.ContainerStats())

    assert usage.cpu_usage_core_ns is None
    assert usage.cpu_usage_nano_cores is None
    assert usage.memory_working_set_bytes is None
    assert usage.memory_usage_bytes is None
    assert usage.memory_rss_bytes is None
    assert usage.page_faults is None
    assert usage.swap_usage_bytes is None
    assert usage.writable_layer_used_bytes is None
    assert usage.cpu_pressure is usage.memory_pressure is usage.io_pressure is None


def test_a_reported_zero_stays_zero() -> None:
    stats = pb.ContainerStats(cpu=pb.CpuUsage(usage_core_nano_seconds=number(0)))

    assert cri_usage.container_usage(stats).cpu_usage_core_ns == 0


def test_every_measured_field_of_a_container_is_kept() -> None:
    usage = cri_usage.container_usage(
        pb.ContainerStats(
            attributes=pb.ContainerAttributes(
                id="c1", metadata=pb.ContainerMetadata(name="app"), labels={"a": "b"}
            ),
            cpu=pb.CpuUsage(
                timestamp=1, usage_core_nano_seconds=number(2), usage_nano_cores=number(3)
            ),
            memory=pb.MemoryUsage(
                timestamp=4,
                working_set_bytes=number(5),
                available_bytes=number(6),
                usage_bytes=number(7),
                rss_bytes=number(8),
                page_faults=number(9),
                major_page_faults=number(10),
            ),
            swap=pb.SwapUsage(swap_available_bytes=number(11), swap_usage_bytes=number(12)),
            writable_layer=pb.FilesystemUsage(
                timestamp=15, used_bytes=number(13), inodes_used=number(14)
            ),
        )
    )

    assert (usage.id, usage.name, usage.labels) == ("c1", "app", {"a": "b"})
    assert (usage.cpu_timestamp_ns, usage.cpu_usage_core_ns, usage.cpu_usage_nano_cores) == (
        1,
        2,
        3,
    )
    assert (usage.memory_timestamp_ns, usage.memory_working_set_bytes) == (4, 5)
    assert (usage.memory_available_bytes, usage.memory_usage_bytes) == (6, 7)
    assert (usage.memory_rss_bytes, usage.page_faults, usage.major_page_faults) == (8, 9, 10)
    assert (usage.swap_available_bytes, usage.swap_usage_bytes) == (11, 12)
    assert (usage.writable_layer_used_bytes, usage.writable_layer_inodes_used) == (13, 14)
    assert usage.writable_layer_timestamp_ns == 15


@pytest.mark.parametrize(
    ("stamp_ns", "used", "shown"),
    [
        (0, 0, (None, None)),  # containerd has not come to it yet: container_stats_list.go
        (7, 0, (0, 0)),
        (0, 13, (13, 13)),
    ],
)
def test_a_layer_not_measured_yet_has_no_size(
    stamp_ns: int, used: int, shown: tuple[int | None, int | None]
) -> None:
    layer = pb.FilesystemUsage(
        timestamp=stamp_ns, used_bytes=number(used), inodes_used=number(used)
    )
    usage = cri_usage.container_usage(pb.ContainerStats(writable_layer=layer))
    assert (usage.writable_layer_used_bytes, usage.writable_layer_inodes_used) == shown


def test_pressure_totals_in_nanoseconds_become_microseconds() -> None:
    data = pb.PsiData(Total=1_234_567, Avg10=1.5, Avg60=2.5, Avg300=3.5)
    line = PressureLine(avg10=1.5, avg60=2.5, avg300=3.5, total_usec=1234)

    both = cri_usage.pressure(pb.PsiStats(Some=data, Full=data))
    some = cri_usage.pressure(pb.PsiStats(Some=data))

    assert both == Pressure(some=line, full=line)
    assert some == Pressure(some=line, full=None)


def test_a_pods_default_interface_comes_first() -> None:
    usage = cri_usage.sandbox_usage(
        pb.PodSandboxStats(
            attributes=pb.PodSandboxAttributes(
                id="s1",
                metadata=pb.PodSandboxMetadata(name="web", uid="u1", namespace="shop"),
            ),
            linux=pb.LinuxPodSandboxStats(
                network=pb.NetworkUsage(
                    timestamp=9,
                    default_interface=pb.NetworkInterfaceUsage(
                        name="eth0", rx_bytes=number(1), tx_errors=number(2)
                    ),
                    interfaces=[pb.NetworkInterfaceUsage(name="eth1")],
                ),
                process=pb.ProcessUsage(process_count=number(3)),
                containers=[pb.ContainerStats(attributes=pb.ContainerAttributes(id="c1"))],
            ),
        )
    )

    assert (usage.total.id, usage.total.name) == ("s1", "web")
    assert (usage.namespace, usage.uid) == ("shop", "u1")
    assert [interface.name for interface in usage.interfaces] == ["eth0", "eth1"]
    default = usage.interfaces[0]
    assert (default.rx_bytes, default.rx_errors) == (1, None)
    assert (default.tx_bytes, default.tx_errors) == (None, 2)
    assert (usage.network_timestamp_ns, usage.process_count) == (9, 3)
    assert [container.id for container in usage.containers] == ["c1"]
