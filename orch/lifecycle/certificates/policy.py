"""Which requests for certificates fit their signer, and which of them need nobody's approval; pure.

A node may be given a client certificate of its own name, and a serving certificate for its own
name and addresses. What does not fit is left to people, or refused by the signer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from orch.component import signing_requests
from orch.component.signing_requests import SigningRequest
from orch.wire.names import (
    GROUP_MASTERS,
    GROUP_NODES,
    SIGNER_CLIENT,
    SIGNER_NODE_CLIENT,
    SIGNER_NODE_SERVING,
    USER_BOOTSTRAP_PREFIX,
    USER_NODE_PREFIX,
)
from orch.wire.records.authentication import (
    CLIENT_AUTH,
    DIGITAL_SIGNATURE,
    KEY_ENCIPHERMENT,
    SERVER_AUTH,
)
from orch.wire.records.core import Node
from orch.wire.validation import dns1123_subdomain_problems

SIGNERS = (SIGNER_CLIENT, SIGNER_NODE_CLIENT, SIGNER_NODE_SERVING)
_OWNERS = 2  # of a host: one of them is another node, whoever asks
NODE_CLIENT, SELF_NODE_CLIENT, SELF_NODE_SERVER = "nodeclient", "selfnodeclient", "selfnodeserver"


def misfit(signer: str, asked: SigningRequest, usages: Sequence[str], username: str) -> str:
    """Why no certificate of this signer can be issued for the request; "" when it can."""
    purpose = SERVER_AUTH if signer == SIGNER_NODE_SERVING else CLIENT_AUTH
    if purpose not in usages:
        return f"its usages lack {purpose}"
    if more := sorted({*usages} - {purpose, DIGITAL_SIGNATURE, KEY_ENCIPHERMENT}):
        return f"its usages include {', '.join(more)}"
    if asked.others:
        return f"it asks for {asked.others[0]}"
    if signer != SIGNER_NODE_SERVING and (asked.dns_names or asked.addresses):
        return "a client has no host names"
    if signer != SIGNER_CLIENT:
        return _node_misfit(signer, asked, username)
    masters = GROUP_MASTERS in asked.organizations
    return f"a member of {GROUP_MASTERS} cannot be made by a request" if masters else ""


def _node_misfit(signer: str, asked: SigningRequest, username: str) -> str:
    if asked.organizations != (GROUP_NODES,):
        return f"the organization in its subject is not just {GROUP_NODES}"
    if not node_of(asked):
        return f"the common name in its subject is not {USER_NODE_PREFIX}<name of a node>"
    if signer == SIGNER_NODE_CLIENT:
        return ""
    if not (asked.dns_names or asked.addresses):
        return "it names no address or host to serve on"
    if username != asked.common_name:
        return f"it is for {asked.common_name}, and asked for by {username}"
    return ""


def node_of(asked: SigningRequest) -> str:
    """The node that the subject names; "" when it names none."""
    name = asked.common_name.removeprefix(USER_NODE_PREFIX)
    named = name != asked.common_name and not dns1123_subdomain_problems(name)
    return name if named else ""


def review_of(signer: str, asked: SigningRequest, username: str) -> str:
    """What the asker must be allowed to create for a fitting request to be approved at once; ""
    where people decide.
    """
    own = username == asked.common_name
    if signer == SIGNER_NODE_CLIENT:
        if own:
            return SELF_NODE_CLIENT
        return NODE_CLIENT if username.startswith(USER_BOOTSTRAP_PREFIX) else ""
    return SELF_NODE_SERVER if signer == SIGNER_NODE_SERVING and own else ""


def in_use(node: Node | None) -> str:
    """Why a machine that only has a bootstrap token cannot become this node; "" when it can."""
    conditions = (node.status.conditions or ()) if node else ()
    if any(c.type == "Ready" and c.status == "True" for c in conditions):
        name = node.metadata.name if node else ""
        return (
            f"node {name} is Ready, so another machine has this name: join under another one"
            " (--node-name), or run 'nodeagent leave' there, then join again"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The `names` of all nodes, and by host whose it is: two of them at most."""

    names: frozenset[str]
    owners: Mapping[str, Sequence[str]]


def hosts_of(nodes: Mapping[str, Node]) -> Hosts:
    """Linear in what nodes report, which may be thousands of addresses of each."""
    owners: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for host in {_plain(name), *_hosts(node)}:
            known = owners.setdefault(host, [])
            if len(known) < _OWNERS:
                known.append(name)
    return Hosts(frozenset(nodes), owners)


def foreign_host(asked: SigningRequest, hosts: Hosts, others: Sequence[str]) -> str:
    """Which requested host does not belong to this node alone, and why; "" for none.

    `others` are hosts of the control plane. A node reports its own addresses, so they count only
    where no other node, and no server, has them.
    """
    name = node_of(asked)
    if name not in hosts.names:
        return f"there is no node {name} yet"
    control_plane = {_plain(host) for host in others}
    for host in map(_plain, (*asked.dns_names, *asked.addresses)):
        owners = hosts.owners.get(host, ())
        foreign = next((f"node {owner}" for owner in owners if owner != name), "")
        if not foreign and host in control_plane:
            foreign = "the control plane"
        if foreign:
            return f"{host} belongs to another machine: {foreign}"
        if not owners:
            return f"{host} is not an address of node {name}"
        if not (signing_requests.is_address(host) or f"{host}.".startswith(f"{name}.")):
            return f"{host} is not the name of node {name}"
    return ""


def in_rotation(names: Iterable[str], user_of: Callable[[str], str], most: int) -> list[str]:
    """The first of each user, then the second of each, and so on: `most` of them."""
    users: dict[str, list[str]] = {}
    for name in names:
        users.setdefault(user_of(name), []).append(name)
    rounds = zip_longest(*users.values())
    return [name for each in rounds for name in each if name is not None][:most]


def _hosts(node: Node) -> set[str]:
    return {_plain(one.address) for one in node.status.addresses or () if one.address}


def _plain(host: str) -> str:
    """A host in its one form: `::1`, lower case, an IPv4 address as such."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower().rstrip(".")
    return str(getattr(address, "ipv4_mapped", None) or address)
