"""Policies, the node's file and `dnsConfig` → what a pod resolves names by."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.pods.spec import dns
from nodeagent.pods.spec.dns import Dns, DnsSettings
from nodeagent.pods.spec.env import SpecError
from tests.fakes.pods import UID, pod

FILE = """; made by something
domain home.example
nameserver 192.0.2.53 # the nearest
search ignored.example
search lab.example. example .
options ndots:1 rotate
options ndots:2
nameserver
"""
NODE = Dns(["192.0.2.53"], ["lab.example", "example", "."], ("ndots:2", "rotate"))
CLUSTER = DnsSettings(("10.0.0.10",), "cluster.local")
OWN = ("default.svc.cluster.local", "svc.cluster.local", "cluster.local")
IN_CLUSTER = Dns(("10.0.0.10",), (*OWN, "lab.example", "example", "."), ("ndots:5",))
WITHOUT = DnsSettings()
ELSEWHERE = DnsSettings(resolv_conf="/run/resolver/resolv.conf")
NO_FILE = DnsSettings(resolv_conf="")
NOTHING = Dns()
FIRST = {"dnsPolicy": "ClusterFirst"}
ON_HOST = {"hostNetwork": True}
ADDED = {
    "nameservers": ["192.0.2.99", "192.0.2.53"],
    "searches": ["own.example", "example"],
    "options": [{"name": "ndots", "value": "3"}, {"name": "edns0"}, {"name": "x", "value": ""}],
}
NODE_AND_ADDED = Dns(
    ("192.0.2.53", "192.0.2.99"),
    ("lab.example", "example", ".", "own.example"),
    ("ndots:3", "rotate", "edns0", "x"),
)
ONLY_ADDED = Dns(
    ("192.0.2.99", "192.0.2.53"), ("own.example", "example"), ("ndots:3", "edns0", "x")
)

# K:pkg/kubelet/network/dns: TestGetPodDNS, TestGetPodDNSCustom
CASES: list[tuple[dict[str, Any], DnsSettings, Dns]] = [
    ({}, WITHOUT, NOTHING),
    ({}, CLUSTER, IN_CLUSTER),
    (FIRST, CLUSTER, IN_CLUSTER),
    (FIRST, DnsSettings(("10.0.0.10",)), Dns(("10.0.0.10",), tuple(NODE.searches), ("ndots:5",))),
    (FIRST | ON_HOST, CLUSTER, NOTHING),
    (FIRST | ON_HOST, ELSEWHERE, NODE),
    (ON_HOST | {"dnsPolicy": "ClusterFirstWithHostNet"}, CLUSTER, IN_CLUSTER),
    ({"dnsPolicy": "Default"}, CLUSTER, NOTHING),
    ({"dnsPolicy": "Default"}, ELSEWHERE, NODE),
    ({"dnsPolicy": "Default"}, NO_FILE, Dns(("127.0.0.1",), (".",))),
    ({"dnsPolicy": "Default", "dnsConfig": ADDED}, WITHOUT, NODE_AND_ADDED),
    ({"dnsPolicy": "None", "dnsConfig": ADDED}, CLUSTER, ONLY_ADDED),
]


@pytest.mark.parametrize(("fields", "settings", "expected"), CASES)
def test_the_policy_chooses_and_the_pods_own_settings_are_added(
    fields: dict[str, Any], settings: DnsSettings, expected: Dns
) -> None:
    wanted = pod(**fields)
    text = FILE if dns.file_read(wanted, settings) else ""
    found, notes = dns.pod_dns(wanted, settings, text)
    lines = (found.servers, found.searches, found.options)
    asked = (expected.servers, expected.searches, expected.options)
    assert [list(part) for part in lines] == [list(part) for part in asked]
    assert notes == []


def test_a_cluster_without_servers_is_told_to_who_asks_for_them() -> None:
    found, [(reason, message)] = dns.pod_dns(pod(**FIRST), ELSEWHERE, FILE)
    assert (tuple(found.servers), reason) == (("192.0.2.53",), "MissingClusterDNS")
    assert message.startswith(f'pod: "web_default({UID})". no clusterDNS is configured')
    assert message.endswith('Falling back to "Default" policy.')


LONG = [f"{'a' * 60}.{number:02}.example" for number in range(40)]  # 71 characters each


@pytest.mark.parametrize(
    ("config", "servers", "searches", "notes"),
    [
        ({"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]}, 3, 0, ["Nameserver"]),
        ({"searches": [f"s{n}.example" for n in range(33)]}, 0, 32, ["Search Line"]),
        ({"searches": LONG[:32]}, 0, 28, ["Search Line"]),  # 2,048 characters
        ({"searches": ["a" * 254, "b"]}, 0, 1, ["Search Line"]),
        ({"searches": LONG[:28]}, 0, 28, []),
    ],
)
def test_what_a_resolver_would_not_read_is_left_out_and_said(
    config: dict[str, Any], servers: int, searches: int, notes: list[str]
) -> None:
    found, said = dns.pod_dns(pod(dnsPolicy="None", dnsConfig=config), CLUSTER, "")
    assert (len(found.servers), len(found.searches)) == (servers, searches)
    assert len(" ".join(found.searches)) <= 2048
    assert [reason for reason, _ in said] == ["DNSConfigForming"] * len(notes)
    for (_, message), kind in zip(said, notes, strict=True):
        assert message.startswith(f"{kind} limits were exceeded, some ")


NAMED = {"hostname": "db", "subdomain": "data"}
AS_FQDN = {**NAMED, "setHostnameAsFQDN": True}


@pytest.mark.parametrize(
    ("fields", "settings", "kernel", "full"),
    [
        ({}, CLUSTER, "web", ""),
        ({"setHostnameAsFQDN": True}, CLUSTER, "web", ""),
        (NAMED, CLUSTER, "db", "db.data.default.svc.cluster.local"),
        (AS_FQDN, CLUSTER, *["db.data.default.svc.cluster.local"] * 2),
        (AS_FQDN, WITHOUT, *["db.data.default.svc."] * 2),
    ],
)
def test_a_pod_in_a_subdomain_has_a_full_name(
    fields: dict[str, Any], settings: DnsSettings, kernel: str, full: str
) -> None:
    wanted = pod(**fields)
    assert (dns.kernel_name(wanted, settings), dns.full_name(wanted, settings)) == (kernel, full)


def test_an_overriding_name_replaces_all_others() -> None:
    wanted = pod(hostnameOverride="db.example.org", hostname="a", subdomain="b")
    assert dns.hostname(wanted) == dns.kernel_name(wanted, CLUSTER) == "db.example.org"
    assert dns.full_name(wanted, CLUSTER) == ""


def test_a_full_name_that_the_kernel_would_not_take_is_refused() -> None:
    fits = {**AS_FQDN, "hostname": "d" * (64 - len(".data.default.svc.cluster.local"))}
    assert len(dns.kernel_name(pod(**fits), CLUSTER)) == 64
    text = (
        r"^failed to construct FQDN .* is too long \(64 .* 65 .*: leave out spec.setHostnameAsFQDN"
    )
    with pytest.raises(SpecError, match=text):
        dns.kernel_name(pod(**{**fits, "hostname": fits["hostname"] + "d"}), CLUSTER)
