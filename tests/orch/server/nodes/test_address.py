from __future__ import annotations

import pytest

from orch.server.nodes.address import (
    AgentEndpoint,
    ProxyId,
    agent_path,
    endpoint_of,
    is_address,
    is_allowed,
    parse_id,
)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [  # K:pkg/registry/core/node/strategy.go, AM:util/net SplitSchemeNamePort
        ("n1", ProxyId("n1")),
        ("n1:10255", ProxyId("n1", "", 10255)),
        ("https:n1:443", ProxyId("n1", "https", 443)),
        ("http:n1:8080", ProxyId("n1", "http", 8080)),
        ("https:n1:", ProxyId("n1", "https", None)),
        ("node.example.com", ProxyId("node.example.com")),
    ],
)
def test_a_proxy_id_is_a_name_with_perhaps_a_scheme_and_a_port(text, parsed) -> None:
    assert parse_id(text) == parsed


@pytest.mark.parametrize(
    "text",
    ["", ":80", "n1:0", "n1:65536", "n1:x", "n1:-1", "ftp:n1:21", "a:b:c:d", "N1", "n/1", "n1:٣"],
)
def test_what_is_no_proxy_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not|is not"):
        parse_id(text)


@pytest.mark.parametrize(
    ("rest", "path"),
    [
        ("", "/"),
        ("/", "/"),
        ("/stats%2Fsummary", "/stats/summary"),
        ("/stats%2fsummary", "/stats/summary"),
        ("/%2Flogs%2F", "//logs/"),
        ("/logs/a%252F..%252Fb", "/logs/a%252F..%252Fb"),  # decoded once, by the agent
        ("/logs/a%20b...c", "/logs/a%20b...c"),
    ],
)
def test_encoded_slashes_divide_the_path_at_the_agent(rest: str, path: str) -> None:
    assert agent_path(rest) == path


@pytest.mark.parametrize(
    "rest", ["/..", "/a/../b", "/..%2F..%2Fpods", "/a%2F%2e%2E%2fb", "/%2E", "/a/%2e%2e/"]
)
def test_no_path_leads_upwards_at_the_agent(rest: str) -> None:
    with pytest.raises(ValueError, match=r"segment \. or \.\."):
        agent_path(rest)


def node(*addresses: tuple[str, str], **endpoints: int) -> dict:
    return {
        "status": {
            "addresses": [{"type": kind, "address": address} for kind, address in addresses],
            "daemonEndpoints": {name: {"Port": port} for name, port in endpoints.items()},
        }
    }


BOTH = (("Hostname", "n1"), ("InternalIP", "10.0.0.1"))


@pytest.mark.parametrize(
    ("record", "wanted", "endpoint"),
    [
        (node(*BOTH), ProxyId("n1"), AgentEndpoint("10.0.0.1", 10250, "https")),
        (
            node(("Hostname", "n1")),
            ProxyId("n1"),
            AgentEndpoint("n1", 10250, "https"),
        ),
        (
            node(*BOTH, nodeagentEndpoint=777, kubeletEndpoint=888),
            ProxyId("n1"),
            AgentEndpoint("10.0.0.1", 777, "https"),
        ),
        (
            node(*BOTH, kubeletEndpoint=888),
            ProxyId("n1", "http", 888),
            AgentEndpoint("10.0.0.1", 888, "https"),
        ),
        (
            node(*BOTH),
            ProxyId("n1", "", 9100),
            AgentEndpoint("10.0.0.1", 9100, "http"),
        ),
        (
            node(*BOTH),
            ProxyId("n1", "https", 9100),
            AgentEndpoint("10.0.0.1", 9100, "https"),
        ),
        (
            node(*BOTH, nodeagentEndpoint=0),
            ProxyId("n1"),
            AgentEndpoint("10.0.0.1", 10250, "https"),
        ),
        (node(("Other", "x")), ProxyId("n1"), None),
        ({}, ProxyId("n1"), None),
    ],
)
def test_the_endpoint_comes_from_the_status_of_the_node(record, wanted, endpoint) -> None:
    assert endpoint_of(record, wanted) == endpoint


@pytest.mark.parametrize(
    ("address", "allowed", "allowed_locally"),
    [
        ("10.0.0.1", True, True),
        ("192.168.1.1", True, True),
        ("2001:db8::1", True, True),
        ("127.0.0.1", False, True),
        ("127.8.8.8", False, True),
        ("::1", False, True),
        ("::ffff:127.0.0.1", False, True),
        ("169.254.169.254", False, True),
        ("::ffff:169.254.169.254", False, True),
        ("fe80::1%eth0", False, True),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("224.0.0.1", False, False),
        ("ff02::1", False, False),
        ("255.255.255.255", False, False),
    ],
)
def test_this_machine_and_its_link_are_called_only_when_allowed(
    address, allowed, allowed_locally
) -> None:
    assert is_allowed(address, allow_local=False) is allowed
    assert is_allowed(address, allow_local=True) is allowed_locally


def test_only_a_name_need_be_looked_up() -> None:
    assert all(map(is_address, ("192.0.2.1", "2001:db8::1", "fe80::1%eth0")))
    assert not any(map(is_address, ("n1", "127.1", "0x7f000001", "")))
