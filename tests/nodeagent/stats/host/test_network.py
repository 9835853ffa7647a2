"""Network counters and routes; texts as the kernel prints them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.stats.host import network
from nodeagent.stats.samples import InterfaceSample
from tests.fakes import hosts

HEADER = b"Inter-|   Receive | Transmit\n face |bytes packets|bytes packets\n"
ROUTES = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


def test_lines_become_counters_of_both_directions() -> None:
    data = HEADER + b"  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"
    assert network.parse_net_dev(data) == (InterfaceSample("eth0", 1, 2, 3, 4, 9, 10, 11, 12),)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (b"eth0:123 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", ["eth0"]),  # no blank after colon
        (b"    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", []),
        (b"vethab: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", []),
        (b"Docker0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", []),
        (b"nerdctl1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", []),
        (b"eth0: 1 2 3\n", []),
        (b"eth0: x 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", []),
        (b"eth0: 18446744073709551616 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", []),
        (b"eth0.5: 18446744073709551615 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", ["eth0.5"]),
    ],
)
def test_only_whole_lines_of_real_interfaces_count(line: bytes, names: list[str]) -> None:
    assert [interface.name for interface in network.parse_net_dev(HEADER + line)] == names


def test_not_every_number_of_interfaces_is_read(tmp_path: Path) -> None:
    """Of 3,000 of one pod each reading took 0.85 MiB, and 256 are remembered."""
    line = b"%6d: 12345678 2345678 3 4 5 6 7 8 98765432 1098765 11 12 13 14 15 16\n"
    (tmp_path / "7/net").mkdir(parents=True)
    text = HEADER + b"".join(line % number for number in range(3000))
    (tmp_path / "7/net/dev").write_bytes(text)
    seen = network.read_network(str(tmp_path), 7, 0)
    assert seen is not None
    assert 1000 < len(seen.interfaces) < 2000


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_complete_interfaces_or_none(data: bytes) -> None:
    for text in (data, HEADER + data):
        for interface in network.parse_net_dev(text):
            name, *counters = interface
            assert isinstance(interface, InterfaceSample) and name
            assert all(counter is not None and counter >= 0 for counter in counters)
    default = network.default_interface(data)
    assert default is None or default


def route(name: str, destination: str, metric: int, *, flags: str = "0003") -> str:
    mask = "00000000" if destination == "00000000" else "00FFFFFF"
    return f"{name}\t{destination}\t010200C0\t{flags}\t0\t0\t{metric}\t{mask}\t0\t0\t0\n"


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        ([route("eth0", "00000000", 0)], "eth0"),
        ([route("wlan0", "00000000", 600), route("eth0", "00000000", 100)], "eth0"),
        ([route("eth0", "000200C0", 0)], None),
        ([route("eth0", "00000000", 0, flags="0002")], None),
        ([], None),
    ],
)
def test_the_default_interface_has_the_best_route(routes: list[str], expected: object) -> None:
    assert network.default_interface((ROUTES + "".join(routes)).encode()) == expected


def test_a_host_s_network_is_that_of_its_first_process() -> None:
    sample = network.read_network(str(hosts.TREES / "v2/proc"), 1, 5)
    assert sample and sample.default == "eth0"
    assert [interface.name for interface in sample.interfaces] == ["eth0", "eth1"]


def test_without_eth0_the_default_route_decides(tmp_path: Path) -> None:
    directory = tmp_path / "1/net"
    directory.mkdir(parents=True)
    line = b"ens3: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n"
    (directory / "dev").write_bytes(HEADER + line)
    sample = network.read_network(str(tmp_path), 1, 5)
    assert sample and sample.default is None
    (directory / "route").write_text(ROUTES + route("ens3", "00000000", 0))
    sample = network.read_network(str(tmp_path), 1, 5)
    assert sample and sample.default == "ens3"


def test_more_interfaces_than_a_page_holds_are_read_to_their_end(tmp_path: Path) -> None:
    directory = tmp_path / "1/net"
    directory.mkdir(parents=True)
    words = b" ".join(b"%d" % (10**15 + number) for number in range(16))
    lines = [b"ens%d: %b\n" % (number, words) for number in range(300)]
    (directory / "dev").write_bytes(HEADER + b"".join(lines))
    sample = network.read_network(str(tmp_path), 1, 5)
    assert sample and len(sample.interfaces) == 300


def test_a_process_that_is_gone_has_no_network(tmp_path: Path) -> None:
    assert network.read_network(str(tmp_path), 4242, 5) is None
    assert network.shares_host_network(str(tmp_path), 4242) is False


def test_this_process_shares_the_network_of_itself() -> None:
    assert network.read_network("/proc", "self", 5)
    if os.geteuid() == 0:
        assert isinstance(network.shares_host_network("/proc", os.getpid()), bool)


def test_netlink_lists_the_interfaces_of_this_machine() -> None:
    links = {link.name: link for link in network.read_links()}
    assert links["lo"].mtu > 0 and links["lo"].kind == ""
