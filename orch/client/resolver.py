"""Host names to addresses, in threads that nothing else uses up.

The loop's own pool of threads is shared with reading and writing files: a disk that hangs fills it,
and a client that waits for one of those threads cannot dial; a resolver that hangs fills it too.
Imports aiohttp, so `transport` imports it only when it dials.
"""

from __future__ import annotations

import errno
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from orch.component.process.threads import SingleFlight

_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_NUMERIC_NAME = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
MAX_CONCURRENT = 64  # as many threads a resolver that hangs may hold

Name = tuple[str, int, socket.AddressFamily]


class Resolver(AbstractResolver):
    """Asks as aiohttp's ThreadedResolver does; a name that hangs is not asked for again."""

    def __init__(self) -> None:
        self._asking: dict[Name, SingleFlight[list[ResolveResult]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """OSError when the name does not resolve, or there is no thread to ask in."""
        name = host, port, family
        if name not in self._asking:
            self._asking = {n: one for n, one in self._asking.items() if one.is_running}
            if len(self._asking) >= MAX_CONCURRENT:
                raise OSError(errno.EAGAIN, "the resolver does not answer")
            self._asking[name] = SingleFlight(lambda: _ask(*name), name="name resolution")
        return await self._asking[name].run()

    async def close(self) -> None:
        """Nothing is held."""


def _ask(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
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
