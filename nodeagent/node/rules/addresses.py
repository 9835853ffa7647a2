"""Chooses the addresses that the node reports from the machine's; pure.

The order is the reference agent's (pkg/kubelet/nodestatus/setters.go): --node-ip, a host name that
is an address, an address of this machine that the host name resolves to, the address of the default
route. `node.collector` looks them up.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from nodeagent.node.rules.facts import AddressFacts

INTERNAL_IP = "InternalIP"
HOSTNAME = "Hostname"


@dataclass(frozen=True, slots=True)
class Candidates:
    """`asked` is --node-ip ("" when not given); `resolved` holds only addresses of this machine."""

    hostname: str
    asked: str = ""
    resolved: tuple[str, ...] = ()
    default_route: str | None = None


def choose(candidates: Candidates) -> tuple[AddressFacts, ...]:
    """InternalIP, if there is a usable address, then Hostname."""
    chosen = _internal_ip(candidates)
    internal = (AddressFacts(INTERNAL_IP, chosen),) if chosen else ()
    return (*internal, AddressFacts(HOSTNAME, candidates.hostname))


def node_ip_problem(text: str) -> str | None:
    """Why `--node-ip` cannot be this node's address; None when it can.

    Loopback is allowed: a cluster on one machine is reached there.
    """
    if not text:
        return None
    address = _parse(text)
    if address is None:
        return f"--node-ip {text!r} is not an IP address"
    if address.is_multicast or address.is_unspecified or address.is_link_local:
        return f"--node-ip {text} cannot be reached from other machines; give one that can"
    return None


def _internal_ip(candidates: Candidates) -> str | None:
    if candidates.asked:
        return candidates.asked
    if _parse(candidates.hostname):
        return candidates.hostname
    options = [*sorted(candidates.resolved, key=_is_v6), candidates.default_route]
    return next((text for text in options if text and _is_reachable(text)), None)


def _is_v6(text: str) -> bool:
    return ":" in text


def _is_reachable(text: str) -> bool:
    address = _parse(text)
    return address is not None and not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
    )


def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
