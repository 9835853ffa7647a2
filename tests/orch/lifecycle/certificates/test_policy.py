"""Which request gets which certificate, as tables."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from orch.component import signing_requests
from orch.component.signing_requests import SigningRequest
from orch.lifecycle.certificates import policy
from orch.wire.names import SIGNER_CLIENT, SIGNER_NODE_CLIENT, SIGNER_NODE_SERVING
from orch.wire.records.core import Node

KEY = signing_requests.make_key()
NODE = "system:node:n1"
CLIENT = ("digital signature", "client auth")
SERVER = ("digital signature", "key encipherment", "server auth")


def asked(
    name: str = NODE, group: str = "system:nodes", hosts: Sequence[str] = ()
) -> SigningRequest:
    return signing_requests.read(signing_requests.make_request(KEY, name, group, hosts))


def node(name: str, *addresses: str, ready: str = "") -> Node:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    listed = [{"type": "InternalIP", "address": one} for one in addresses]
    status = {"addresses": listed, "conditions": conditions}
    return Node.from_wire({"metadata": {"name": name}, "status": status})


@pytest.mark.parametrize(
    ("signer", "request_", "usages", "user", "why"),
    [
        (SIGNER_NODE_CLIENT, asked(), CLIENT, "x", ""),
        (SIGNER_NODE_CLIENT, asked(), ("client auth",), "x", ""),
        (SIGNER_NODE_CLIENT, asked(), SERVER, "x", "lack client auth"),
        (SIGNER_NODE_CLIENT, asked(), (*CLIENT, "server auth"), "x", "include server auth"),
        (SIGNER_NODE_CLIENT, asked(), (*CLIENT, "cert sign"), "x", "include cert sign"),
        (SIGNER_NODE_CLIENT, asked(hosts=("n1",)), CLIENT, "x", "no host names"),
        (SIGNER_NODE_CLIENT, asked(group="system:masters"), CLIENT, "x", "not just system:nodes"),
        (SIGNER_NODE_CLIENT, asked(name="admin"), CLIENT, "x", "is not system:node:"),
        (SIGNER_NODE_CLIENT, asked(name="system:node:"), CLIENT, "x", "is not system:node:"),
        (SIGNER_NODE_CLIENT, asked(name="system:node:A b"), CLIENT, "x", "is not system:node:"),
        (SIGNER_NODE_SERVING, asked(hosts=("n1",)), SERVER, NODE, ""),
        (SIGNER_NODE_SERVING, asked(), SERVER, NODE, "names no address"),
        (SIGNER_NODE_SERVING, asked(hosts=("n1",)), SERVER, "system:node:n2", "asked for by"),
        (SIGNER_NODE_SERVING, asked(hosts=("n1",)), CLIENT, NODE, "lack server auth"),
        (SIGNER_CLIENT, asked(name="ann", group="devs"), CLIENT, "x", ""),
        (SIGNER_CLIENT, asked(name="ann", group="system:masters"), CLIENT, "x", "system:masters"),
        (SIGNER_CLIENT, asked(name="ann", hosts=("a",)), CLIENT, "x", "no host names"),
    ],
)  # fmt: skip
def test_a_signer_issues_what_fits(
    signer: str, request_: SigningRequest, usages: Sequence[str], user: str, why: str
) -> None:
    found = policy.misfit(signer, request_, usages, user)
    assert why in found
    assert bool(found) == bool(why)


@pytest.mark.parametrize(
    ("signer", "user", "kind"),
    [
        (SIGNER_NODE_CLIENT, "system:bootstrap:abcdef", "nodeclient"),
        (SIGNER_NODE_CLIENT, NODE, "selfnodeclient"),
        (SIGNER_NODE_CLIENT, "system:node:n2", ""),
        (SIGNER_NODE_CLIENT, "ann", ""),
        (SIGNER_NODE_SERVING, NODE, "selfnodeserver"),
        (SIGNER_NODE_SERVING, "system:bootstrap:abcdef", ""),
        (SIGNER_CLIENT, NODE, ""),
    ],
)
def test_only_nodes_and_those_who_become_nodes_need_nobody(
    signer: str, user: str, kind: str
) -> None:
    assert policy.review_of(signer, asked(), user) == kind


NODES = {
    "n1": node("n1", "10.0.0.1", "::0:1", "n1", "n1.example.com", "victim", "10.0.0.9"),
    "n2": node("n2", "10.0.0.2", "10.0.0.9", "::0:7"),
    "victim": node("victim"),
}


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        (("n1", "10.0.0.1"), ""),
        (("n1.example.com",), ""),
        (("10.0.0.3",), "not an address of node n1"),
        (("10.0.0.2",), "belongs to another machine: node n2"),
        (("10.0.0.9",), "belongs to another machine"),  # both report it
        (("::ffff:10.0.0.2",), "belongs to another machine"),
        (("n2",), "belongs to another machine"),
        (("victim",), "belongs to another machine"),
        (("*.example.com",), "not an address"),
        (("::7",), "belongs to another machine"),
        (("10.0.0.1", "api.example.com"), "belongs to another machine: the control plane"),
    ],
)
def test_a_node_serves_as_itself_alone(hosts: Sequence[str], why: str) -> None:
    found = policy.foreign_host(asked(hosts=hosts), policy.hosts_of(NODES), ["api.example.com"])
    assert why in found
    assert bool(found) == bool(why)


def test_a_name_that_a_node_merely_reports_is_not_its_own() -> None:
    nodes = {"n1": node("n1", "registry.example.com")}
    assert "is not the name" in policy.foreign_host(
        asked(hosts=("registry.example.com",)), policy.hosts_of(nodes), []
    )
    assert "no node n1 yet" in policy.foreign_host(asked(hosts=("n1",)), policy.hosts_of({}), [])


def test_hosts_that_many_nodes_report_belong_to_none_of_them() -> None:
    hosts = policy.hosts_of({name: node(name, "10.0.0.9") for name in ("n3", "n2", "n1")})
    assert "belongs to another machine" in policy.foreign_host(
        asked(hosts=("10.0.0.9",)), hosts, []
    )


@pytest.mark.slow
def test_a_request_costs_nothing_for_what_nodes_report() -> None:
    """Each of a thousand that wait took as long as going through all addresses of all nodes."""
    reported = {f"x{n}": node(f"x{n}", *(f"h{n}-{i}" for i in range(5000))) for n in range(4)}
    began_s = time.perf_counter()
    hosts = policy.hosts_of({**reported, "n1": node("n1", "n1")})
    once_s = time.perf_counter() - began_s
    took_s, evil = [], asked(hosts=("n1", "n2.example.com"))
    for _ in range(20):
        began_s = time.perf_counter()
        assert policy.foreign_host(evil, hosts, [])
        took_s.append(time.perf_counter() - began_s)
    assert min(took_s) < once_s / 10


def test_a_user_with_many_requests_waits_behind_one_with_few() -> None:
    names = [*(f"many-{number}" for number in range(1000)), "few-0", "few-1", "one-0"]
    turn = policy.in_rotation(names, lambda name: name.partition("-")[0], 6)
    assert turn == ["many-0", "few-0", "one-0", "many-1", "few-1", "many-2"]
    assert sorted(policy.in_rotation(names, lambda name: name, 2000)) == sorted(names)


def test_a_node_that_is_ready_is_taken() -> None:
    assert "another machine has this name" in policy.in_use(node("n1", ready="True"))
    assert policy.in_use(node("n1", ready="Unknown")) == policy.in_use(None) == ""
