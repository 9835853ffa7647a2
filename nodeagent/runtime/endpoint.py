"""The address of a runtime, `unix:///path/to.sock` or the path alone; pure."""

from __future__ import annotations


def socket_path(endpoint: str) -> str:
    """The absolute path in `endpoint`; ValueError explains the correct form."""
    path = endpoint.removeprefix("unix://")
    if not path.startswith("/"):
        raise ValueError(f"{endpoint!r} is not a unix socket; write it as unix:///path/to/the.sock")
    return path
