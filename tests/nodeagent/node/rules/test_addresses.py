"""The order of choice is pkg/kubelet/nodestatus/setters.go NodeAddress (upstream)."""

import pytest

from nodeagent.node.rules import addresses
from nodeagent.node.rules.addresses import Candidates

CASES = {
    "the one asked for": (
        Candidates("h", "192.0.2.1", ("192.0.2.2",), "192.0.2.3"),
        ["192.0.2.1", "h"],
    ),
    "loopback when asked for": (Candidates("h", "127.0.0.1"), ["127.0.0.1", "h"]),
    "a host name that is an address": (
        Candidates("192.0.2.9", "", ("192.0.2.2",)),
        ["192.0.2.9", "192.0.2.9"],
    ),
    "what the name resolves to": (
        Candidates("h", "", ("127.0.1.1", "2001:db8::1", "192.0.2.2"), "192.0.2.3"),
        ["192.0.2.2", "h"],
    ),
    "IPv6 alone": (Candidates("h", "", ("fe80::1", "2001:db8::1")), ["2001:db8::1", "h"]),
    "the default route": (Candidates("h", "", ("127.0.1.1",), "192.0.2.3"), ["192.0.2.3", "h"]),
    "no address at all": (Candidates("h"), ["h"]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_fit_address_is_chosen(case: str) -> None:
    candidates, expected = CASES[case]
    chosen = addresses.choose(candidates)
    assert [a.address for a in chosen] == expected
    assert [a.type for a in chosen] == ["InternalIP", "Hostname"][-len(chosen) :]


@pytest.mark.parametrize("text", ["", "192.0.2.1", "127.0.0.1", "2001:db8::1"])
def test_an_address_of_this_node_is_accepted(text: str) -> None:
    assert addresses.node_ip_problem(text) is None


@pytest.mark.parametrize("text", ["host", "0.0.0.0", "224.0.0.1", "fe80::1", "::"])
def test_an_address_nobody_can_use_is_refused(text: str) -> None:
    assert text in (addresses.node_ip_problem(text) or "")
