"""How the address of a container runtime is written: `unix:///path/to.sock`, or the path alone."""

from __future__ import annotations


def socket_path(endpoint: str) -> str:
    """The absolute path in `endpoint`; ValueError says how an endpoint is written."""
    path = endpoint.removeprefix("unix://")
    if not path.startswith("/"):
        raise ValueError(f"{endpoint!r} is not a unix socket; write it as unix:///path/to/the.sock")
    return path
