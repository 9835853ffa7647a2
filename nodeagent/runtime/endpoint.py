"""Where a runtime listens: on its socket, and for streams into containers and pods; pure.

A runtime answers with the URL of its own streaming server, which is good for one connection. Only
HTTP on this machine's loopback is believed: a runtime that names another place would have the
agent carry a tenant's bytes there.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

_TARGET = re.compile(r"/[!-~]{0,2047}")  # path and query as they are sent: no space, no control


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The streams that a client wants; with a terminal the errors come with the output."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """Where the runtime waits for one connection; `target` is the path with its query."""

    host: str  # an address of the loopback
    port: int
    target: str


class StreamingRuntime(Protocol):
    """The part of a runtime's role that opens streams; errors are those of `ContainerRuntime`.

    Nothing runs before the address is connected to.
    """

    async def open_exec(
        self, container_id: str, command: Sequence[str], streams: StreamOptions
    ) -> StreamAddress: ...
    async def open_attach(self, container_id: str, streams: StreamOptions) -> StreamAddress: ...
    async def open_port_forward(self, sandbox_id: str, ports: Sequence[int]) -> StreamAddress:
        """`ports` may be empty: then the client names them in the stream."""
        ...


def stream_address(url: str) -> StreamAddress:
    """The address in a runtime's answer; ValueError says why it is not believed."""
    try:
        parts = urlsplit(url)
        port = parts.port or 0
    except ValueError as error:
        raise ValueError(f"{url[:200]!r} is not a URL: {error}") from None
    if parts.scheme != "http" or parts.username is not None or not port:
        raise ValueError(f"{url[:200]!r} is not http://address:port/path")
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or ""
    if not _is_loopback(host):
        raise ValueError(f"{url[:200]!r} is not on this machine's loopback")
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    if not _TARGET.fullmatch(target):
        raise ValueError(f"the path in {url[:200]!r} cannot be asked for")
    return StreamAddress(host, port, target)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def socket_path(endpoint: str) -> str:
    """The absolute path in `endpoint`; ValueError explains the correct form."""
    path = endpoint.removeprefix("unix://")
    if not path.startswith("/"):
        raise ValueError(f"{endpoint!r} is not a unix socket; write it as unix:///path/to/the.sock")
    return path
