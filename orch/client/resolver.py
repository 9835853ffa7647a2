"""Resolves host names in threads of their own.

The loop's thread pool also reads and writes files: a hanging disk fills it, and a client without a
thread cannot dial; a hanging resolver would fill it as well. Imports aiohttp, so `transport`
imports it only when it dials.
"""

from __future__ import annotations

import errno
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from orch.component.process.threads import SingleFlight

_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_NUMERIC_NAME = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
MAX_CONCURRENT = 64  # threads that a hanging resolver may hold

Name = tuple[str, int, socket.AddressFamily]


class Resolver(AbstractResolver):
    """Like aiohttp's ThreadedResolver, with a single lookup of a name at a time."""

    def __init__(self) -> None:
        self._lookups: dict[Name, SingleFlight[list[ResolveResult]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """OSError when the name does not resolve, or no thread is available."""
        name = host, port, family
        if name not in self._lookups:
            self._lookups = {n: lookup for n, lookup in self._lookups.items() if lookup.is_running}
            if len(self._lookups) >= MAX_CONCURRENT:
                raise OSError(errno.EAGAIN, "the resolver does not answer")
            self._lookups[name] = SingleFlight(lambda: _look_up(*name), name="name resolution")
        return await self._lookups[name].run()

    async def close(self) -> None:
        """No-op: it holds no resources."""


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    try:
        found = socket.getaddrinfo(
            host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "not a host name") from error
    return [
        ResolveResult(
            hostname=host,
            host=socket.getnameinfo(address, _NUMERIC_NAME)[0],  # with the scope of a local address
            port=port,
            family=family,
            proto=proto,
            flags=_NUMERIC,
        )
        for family, _, proto, _, address in found
    ]
