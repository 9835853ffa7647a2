"""Where a node's agent listens, according to its Node, and whether it may be called there; pure.

A node writes its own addresses, so they are not trusted: they must resolve to an address outside
this machine and its link (otherwise a node could point the server at its neighbours), and the agent
must prove by certificate that it is the node asked for.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from orch.server.strategy.base import text_at
from orch.wire.names import AGENT_PORT
from orch.wire.validation import is_dns1123_subdomain

# Addresses before names, since the DNS of this server often does not know hosts' names.
PREFERRED_TYPES = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")
_ENDPOINTS = ("nodeagentEndpoint", "kubeletEndpoint")


@dataclass(frozen=True, slots=True)
class ProxyId:
    """The id in `nodes/{id}/proxy`: `scheme` "" and `port` None when it does not name them."""

    name: str
    scheme: str = ""
    port: int | None = None


@dataclass(frozen=True, slots=True)
class AgentEndpoint:
    """`host` comes from the Node: a name or an address."""

    host: str
    port: int
    scheme: str


def parse_id(text: str) -> ProxyId:
    """`name`, `name:port` or `scheme:name:port` (port may be empty); ValueError."""
    parts = text.split(":")
    scheme, name, port = "", parts[0], ""
    if len(parts) == 2:
        name, port = parts
    elif len(parts) == 3:
        scheme, name, port = parts
    elif len(parts) > 3:
        raise ValueError(f"{text!r} is not name, name:port or scheme:name:port")
    if scheme not in ("", "http", "https"):
        raise ValueError(f"the scheme {scheme!r} in {text!r} is not http or https")
    if not is_dns1123_subdomain(name):
        raise ValueError(f"{name!r} in {text!r} is not the name of a node")
    if not port:
        return ProxyId(name, scheme)
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"the port {port!r} in {text!r} is not a number from 1 to 65535")
    return ProxyId(name, scheme, int(port))


def agent_path(rest: str) -> str:
    """The path at the agent, still encoded; ValueError for one that leads upwards.

    Clients of the reference encode the slashes of a path that they take as one parameter.
    """
    path = (rest or "/").replace("%2F", "/").replace("%2f", "/")
    if any(unquote(segment) in (".", "..") for segment in path.split("/")):
        raise ValueError(f"the path {path!r} has a segment . or ..")
    return path


def endpoint_of(
    node: Mapping[str, Any], wanted: ProxyId, preferred: Sequence[str] = PREFERRED_TYPES
) -> AgentEndpoint | None:
    """Where to connect; None when the Node reports no address of a preferred type.

    The agent's own port is always HTTPS; another port is plain HTTP unless the id names a scheme.
    """
    status = node.get("status") or {}
    by_type: dict[str, str] = {}
    for address in status.get("addresses") or ():
        by_type.setdefault(address.get("type", ""), address.get("address", ""))
    host = next((by_type[kind] for kind in preferred if by_type.get(kind)), "")
    if not host:
        return None
    agent_port = _agent_port(status)
    port = wanted.port or agent_port
    scheme = "https" if port == agent_port else wanted.scheme or "http"
    return AgentEndpoint(host, port, scheme)


def _agent_port(status: Mapping[str, Any]) -> int:
    for name in _ENDPOINTS:
        port = text_at(status, f"daemonEndpoints.{name}.Port")
        if port.isdigit() and 0 < int(port) < 65536:
            return int(port)
    return AGENT_PORT


def is_address(host: str) -> bool:
    """Whether the host is an address, which needs no resolving."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_allowed(address: str, *, allow_local: bool) -> bool:
    """May the proxy connect to a resolved address? `allow_local`: loopback and link-local too."""
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(
        address.partition("%")[0]
    )
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if ip.is_unspecified or ip.is_multicast or str(ip) == "255.255.255.255":
        return False
    return allow_local or not (ip.is_loopback or ip.is_link_local)
