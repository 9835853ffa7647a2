"""The addresses of an etcd cluster as an operator writes them; pure."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit


def parse_servers(servers: Sequence[str]) -> tuple[str, ...]:
    """The URLs checked; ValueError names the one that cannot be used."""
    for server in servers:
        if "@" in server:  # not quoted: it is a secret
            raise ValueError("an address holds credentials: show etcd a certificate instead")
        if not _is_server(server):
            raise ValueError(f"{server!r} is not http://host:port or https://host:port")
    if len({urlsplit(server).scheme for server in servers}) > 1:
        raise ValueError("some servers are http and some https: use one for all")
    return tuple(server.rstrip("/") for server in servers)


def _is_server(text: str) -> bool:
    try:
        parts = urlsplit(text)
        named = bool(parts.hostname and parts.port)
    except ValueError:
        return False
    plain = parts.path in ("", "/") and not (parts.query or parts.fragment)
    return parts.scheme in ("http", "https") and named and plain
