"""The HTTP servers of the programs: bounded listeners, request bodies, peers, request IDs.

Handlers and routes are the programs' own, TLS settings in `tls`, errors in `responses`. A request's
ID is the caller's `X-Request-Id` where it is a plain word, else a new one; it is in the response
and in every log line written while the request is handled.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import random
import re
import ssl
import sys
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import HttpVersion10, hdrs, http_parser, web

from orch.component.http import tcp
from orch.component.http.connection import Connection, limit_tls_buffers
from orch.component.http.connection_limit import AcceptedSocket, ConnectionLimit
from orch.component.http.fair_queue import Turns
from orch.component.http.intake import Intake
from orch.component.http.responses import (
    answer_error,
    api_errors,
    render_status,
    render_text,
    text_errors,
)
from orch.component.http.slow_clients import SlowClients
from orch.component.process import clock, loops, system
from orch.component.process.daemon import SetupError
from orch.component.process.log import request_id
from orch.component.tls import load_certificate, server_context
from orch.wire.errors import ApiError, unauthorized
from orch.wire.names import GROUP_AUTHENTICATED
from orch.wire.records.authentication import Identity

HEADER = "X-Request-Id"
Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]

_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True, slots=True)
class Shortcut:
    """`route` is the only one below each of `prefixes`, which end in a slash, so requests there
    need no router. Without this a GET costs 7-15 % more, a PUT 4-6 %.
    """

    prefixes: tuple[str, ...]
    route: web.AbstractRoute

    def beside(self, app: web.Application, routed: Answering) -> Answering:
        """A handler like `routed`, aiohttp's own, which still gets the unusual requests."""
        match = web.UrlMappingMatchInfo({}, self.route)
        match.add_app(app)
        match.current_app = app
        match.freeze()
        handler: Answering = self.route.handler
        for middleware in reversed(app.middlewares):
            handler = partial(middleware, handler=handler)
        prefixes = self.prefixes

        def answer(request: web.Request) -> Awaitable[web.StreamResponse]:
            path = request.rel_url.raw_path
            plain = path.startswith(prefixes) and "%" not in path and not path.endswith("/")
            if not plain or "Expect" in request.headers:
                return routed(request)
            request._match_info = match  # through which aiohttp finds the application's signals
            return handler(request)

        return answer


SHORTCUT = web.AppKey("shortcut", Shortcut)


def take_shortcut(app: web.Application, server: web.Server) -> None:
    """Make the server's connections use the application's shortcut, if any."""
    shortcut = app.get(SHORTCUT)
    if shortcut is not None:
        changed: Any = server
        changed.request_handler = shortcut.beside(app, changed.request_handler)


def pace_long_heads(server: web.Server) -> None:
    """Begin in turns with requests of long paths or credentials: to find out what one is for, or
    whose it is, takes up to milliseconds, and it has no seat yet.
    """
    changed: Any = server
    begin: Answering = changed.request_handler

    async def begin_in_turn(request: web.Request) -> web.StreamResponse:
        await connection_of(request).take_turn()
        return await begin(request)

    def answer(request: web.Request) -> Awaitable[web.StreamResponse]:
        given = request.headers.get(hdrs.AUTHORIZATION, "")
        is_long = len(request.raw_path) > _LONG_PATH or len(given) > _LONG_CREDENTIALS
        return (begin_in_turn if is_long else begin)(request)

    changed.request_handler = answer


@web.middleware
def _receive(request: web.Request, handler: Answering) -> Awaitable[web.StreamResponse]:
    """Set the request's ID: aiohttp gives each request a context of its own. Refuse what the parser
    accepts but no proper client sends: another major version, and chunks in HTTP/1.0, which
    intermediaries frame differently.
    """
    given = request.headers.get(HEADER, "")
    request_id.set(given if _PLAIN.fullmatch(given) else f"{random.getrandbits(64):016x}")
    version = request.version
    if version.major != 1:
        return _closing(505, "505 HTTP Version Not Supported\n")
    if version == HttpVersion10 and "Transfer-Encoding" in request.headers:
        return _closing(400, "400 Bad Request\n")
    return handler(request)


async def _closing(status: int, text: str) -> web.Response:
    response = render_text(text, status=status)
    response.force_close()
    return response


__all__ = [
    "HttpServer",
    "answer_error",
    "api_errors",
    "connection_of",
    "current_peer",
    "identity_of",
    "load_certificate",
    "read_body",
    "render_status",
    "render_text",
    "server_context",
    "text_errors",
]

KEEPALIVE_S = 75.0
BODY_TIMEOUT_S = 30.0
MAX_CONNECTIONS = 4096
LINGER_S = 5.0
CLOSING_S = 0.5  # for clients to see the end of their connections
ACCEPTS_PER_TURN = 8  # of the event loop
_ACCEPTING_TURNS = 4  # that asyncio takes from an accepted socket to its protocol
_BACKLOG = 1024
OTHER_FILES = 256  # of a program; where so few are allowed, a listener has a quarter of them
_UNREAD_BYTES = 16 * 1024  # of a body that nobody reads yet; twice that is kept at most
_LONG_PATH = 1024  # characters, with the query
_LONG_CREDENTIALS = 2048  # characters; a service account's token has about 900
_BODY = web.RequestKey("body", bytes)


def connection_of(request: web.Request) -> Connection:
    connection = request.protocol
    assert isinstance(connection, Connection)  # noqa: S101 - HttpServer makes no others
    return connection


def current_peer(request: web.Request) -> Identity | None:
    """The identity in the verified TLS client certificate; None without one, or without a CN.

    ApiError 401 when the certificate has expired: a connection may outlive it.
    """
    identity, end_s = _peer(request)
    if clock.wall_ns() > end_s * 1e9:
        raise unauthorized()
    return identity


def _peer(request: web.Request) -> tuple[Identity | None, float]:
    connection, transport = request.protocol, request.transport
    cached = connection.peer if isinstance(connection, Connection) else None
    if cached is not None:
        return cached
    certificate = transport.get_extra_info("peercert") if transport else None
    end_s = ssl.cert_time_to_seconds(certificate["notAfter"]) if certificate else math.inf
    peer = identity_of(certificate), end_s
    if isinstance(connection, Connection) and transport is not None:
        connection.peer = peer
    return peer


def identity_of(certificate: Mapping[str, Any] | None) -> Identity | None:
    """The subject of a certificate in `ssl`'s form: CN is the name, each O a group."""
    if not certificate:
        return None
    attributes = [pair for rdn in certificate.get("subject", ()) for pair in rdn]
    names = [value for key, value in attributes if key == "commonName"]
    if not names or not names[-1]:
        return None
    groups = [value for key, value in attributes if key == "organizationName" and value]
    return Identity(names[-1], tuple(dict.fromkeys((*groups, GROUP_AUTHENTICATED))))


async def read_body(request: web.Request, *, timeout_s: float = BODY_TIMEOUT_S) -> bytes:
    """The whole body within the application's limit, cached; ApiError 408, 413 or 415."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise ApiError(
            415, "UnsupportedMediaType", f"the content encoding {encoding!r} is not supported"
        )
    # A lookup of a missing key costs an exception.
    body = request.get(_BODY) if request.content.at_eof() else None
    if body is None:
        body = request[_BODY] = await _body_of(request, timeout_s)
    return body


async def _body_of(request: web.Request, timeout_s: float) -> bytes:
    content, limit = request.content, request.client_max_size
    if content.is_eof() and content.total_bytes <= limit:
        # Mostly the body is complete: awaiting it makes a PUT 5-7 % more expensive.
        return content.read_nowait()
    try:
        if (request.content_length or 0) <= limit:
            async with asyncio.timeout(timeout_s):
                return await request.read()
    except TimeoutError:
        message = f"the request body did not arrive within {timeout_s:g} s"
        raise ApiError(408, "Timeout", message) from None
    except web.HTTPRequestEntityTooLarge:
        pass
    message = f"Request entity too large: limit is {limit}"
    raise ApiError(413, "RequestEntityTooLarge", message)


class HttpServer:
    """A listener with its own application; `ssl_context` makes it HTTPS.

    `host` is an address or several; with several, `port` is not 0. At `max_connections` (half of
    it per address) a new connection replaces an idle one.
    """

    def __init__(
        self,
        app: web.Application,
        *,
        host: str | Sequence[str],
        port: int,
        ssl_context: ssl.SSLContext | None = None,
        name: str,
        max_connections: int = MAX_CONNECTIONS,
        slow_clients: SlowClients | None = None,
    ) -> None:
        self.name = name
        self.ssl_context = ssl_context
        self.connection_limit = ConnectionLimit(
            name, limit=max_connections, limit_per_address=max(max_connections // 2, 1)
        )
        self._slow_clients = slow_clients or SlowClients(name)
        self._turns = Turns()
        self._app = app
        self._host = host
        self._port = port
        self._manager: web.Server | None = None
        self._sockets: list[tcp.ListeningSocket] = []
        self._listeners: list[asyncio.Server] = []
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()

    async def start(self) -> int:
        """Listen and return the bound port; SetupError (retryable) when it is not available."""
        _require_c_parser()
        if not self._app.frozen:  # it is after an earlier start that found the port taken
            self._app.on_response_prepare.append(_complete_headers)
            self._app.middlewares.insert(0, _receive)
        runner = web.AppRunner(self._app, access_log=None)
        await runner.setup()
        assert runner.server is not None  # noqa: S101 - setup makes it
        take_shortcut(self._app, runner.server)
        pace_long_heads(runner.server)
        self.connection_limit.restrict(_affordable())
        try:
            self._listeners = await self._listen(runner.server)
        except OSError as error:
            await runner.cleanup()
            cause = (os.strerror(error.errno) if error.errno else str(error)).lower()
            if error.errno == errno.EADDRINUSE:
                cause += "; end who listens there (`ss -ltnp` names it), or choose another port"
            host = self._host if isinstance(self._host, str) else ",".join(self._host)
            raise SetupError(
                f"{self.name}: cannot listen on {host}:{self._port}: {cause}"
            ) from error
        self._manager = runner.server
        return int(self._listeners[0].sockets[0].getsockname()[1])

    async def _listen(self, manager: web.Server) -> list[asyncio.Server]:
        loop = asyncio.get_running_loop()
        intakes = Intake(loop), Intake(loop)
        if self.ssl_context is not None:
            limit_tls_buffers()

        def make_connection() -> Connection:
            connection = Connection(
                manager,
                loop=loop,
                access_log=None,
                keepalive_timeout=KEEPALIVE_S,
                lingering_time=LINGER_S,
                read_bufsize=_UNREAD_BYTES,
                auto_decompress=False,
            )
            connection.slow_clients = self._slow_clients
            connection.turns = self._turns
            connection.intakes = intakes
            self._connections.add(connection)
            return connection

        def make_protocol() -> AcceptedSocket:
            return AcceptedSocket(self.connection_limit, make_connection, self.ssl_context)

        bound = await loop.create_server(make_protocol, self._host, self._port, start_serving=False)
        self._sockets = [
            tcp.ListeningSocket(self.name, fileno=os.dup(plain.fileno())) for plain in bound.sockets
        ]
        bound.close()
        servers = [
            await loop.create_server(make_protocol, sock=listening, backlog=ACCEPTS_PER_TURN)
            for listening in self._sockets
        ]
        for listening in self._sockets:  # asyncio has one number for two things
            listening.listen(_BACKLOG)
        return servers

    def renew(self, context: ssl.SSLContext, *, end_connections: bool) -> None:
        """Use another context from now on; `end_connections` also closes the existing ones.

        A request in flight is finished first.
        """
        self.ssl_context = context
        if end_connections:
            for connection in list(self._connections):
                connection.retire()

    async def stop(self, grace_s: float = 5.0) -> None:
        """Stop accepting, let requests in flight end within `grace_s`, then cut the rest."""
        if self._manager is None:
            return
        listeners, manager = self._listeners, self._manager
        self._listeners, self._manager = [], None
        for listening in self._sockets:
            listening.stop_accepting()
        for _ in range(_ACCEPTING_TURNS):
            await asyncio.sleep(0)
        for listener in listeners:
            listener.close()
        await loops.cancel(*self.connection_limit.handshakes)
        await asyncio.sleep(0)  # requests already read reach their handlers
        manager.pre_shutdown()
        await self._app.shutdown()
        await manager.shutdown(grace_s)
        await self.connection_limit.close(CLOSING_S)
        await self._app.cleanup()


def _affordable() -> int:
    """How many connections a listener may have, so that files can still be opened."""
    allowed = system.open_files()
    return sys.maxsize if allowed < 0 else max(allowed - OTHER_FILES, allowed // 4)


async def _complete_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """The application's last signal before they are sent."""
    response.headers.pop("Server", None)
    if current := request_id.get():
        response.headers[HEADER] = current


def _require_c_parser() -> None:
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        raise SetupError(
            "aiohttp's C parser is missing, and its Python parser accepts malformed requests:"
            " reinstall aiohttp from a wheel and unset AIOHTTP_NO_EXTENSIONS"
        )
