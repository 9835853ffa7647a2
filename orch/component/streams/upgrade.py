"""Requests that leave HTTP: the client's connection is taken over and joined to a server behind.

The client waits until that server has agreed, and sends nothing before: a request with a body, or
with more behind it, is refused. Of the headers only those pass that an upgrade needs. The streams
of a program are counted by user, bounded, shared out, and cut together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from orch.component.http import httpd, tcp
from orch.component.http.connection import Connection, allow_pauses
from orch.component.process import loops
from orch.component.streams import remote_command, spdy, tunnel, upstream, websocket
from orch.component.streams.remote_command import Wanted
from orch.component.streams.splice import CLIENT, HELD_BYTES, UPSTREAM, Splice
from orch.component.streams.upstream import Agreement, Ends, Headers
from orch.component.streams.websocket import ClientSocket
from orch.wire.errors import ApiError, bad_request

log = logging.getLogger(__name__)

SPDY, WEBSOCKET = "spdy/3.1", "websocket"
_COMMANDS = remote_command.PROTOCOLS
ROOMY = 32  # so many streams may have the largest messages; those of more have
MESSAGE_BYTES = 128 * 1024  # which are longer than clients make them
_LOOK_S = 2.0  # at whether both ends are still there
_FOREVER_S = 10 * 365 * 86400.0
_ASKED = (
    "Upgrade", "X-Stream-Protocol-Version", "Sec-WebSocket-Key", "Sec-WebSocket-Version",
    "Sec-WebSocket-Protocol",
)  # fmt: skip
_BEARER = "base64url.bearer.authorization."  # a browser's token, which goes no further


def upgrade_headers(request: web.Request) -> Headers:
    """What the server behind needs to know of a request for an upgrade; ApiError 400.

    A refused one is the last of its connection, whose further bytes could be of any protocol.
    """
    why = _refusal(request)
    if why:
        httpd.connection_of(request).close()
        raise bad_request(why)
    headers: Headers = CIMultiDict()
    for name in _ASKED:
        for value in request.headers.getall(name, ()):
            if passed := _without_tokens(value) if name == "Sec-WebSocket-Protocol" else value:
                headers.add(name, passed)
    headers["Connection"] = "Upgrade"
    return headers


def _refusal(request: web.Request) -> str:
    asked = [value.lower() for value in request.headers.getall("Upgrade", ())]
    words = ",".join(request.headers.getall("Connection", ())).lower().split(",")
    if not asked or "upgrade" not in (word.strip(" \t") for word in words):
        return "an upgrade is required: send Connection: Upgrade and Upgrade: SPDY/3.1 or websocket"
    if request.version != HttpVersion11:
        return "an upgrade needs HTTP/1.1"
    if len(asked) > 1 or asked[0] not in (SPDY, WEBSOCKET):
        return f"cannot upgrade to {', '.join(asked)[:100]!r}: SPDY/3.1 and websocket are served"
    if request.content_length or "Transfer-Encoding" in request.headers:
        return "a request for an upgrade has no body"
    if asked[0] == WEBSOCKET and request.method != "GET":
        return "a WebSocket is opened with GET"
    for name in _ASKED:
        if not all(value.isascii() for value in request.headers.getall(name, ())):
            return f"{name}: is no text of ASCII"
    return ""


def _without_tokens(protocols: str) -> str:
    named = (one.strip() for one in protocols.split(","))
    return ", ".join(one for one in named if one and not one.startswith(_BEARER))


class Talk(Protocol):
    """Carries a session to its end, and closes both sides."""

    async def __call__(
        self, socket: ClientSocket, upstream: Ends, /, *, idle_timeout_s: float
    ) -> None: ...


class Translation(NamedTuple):
    """How a client's WebSocket is served by a server behind that speaks SPDY."""

    protocols: Collection[str]  # of the client
    upstream_protocol: str
    talk: Talk

    def upgrade_headers(self) -> Headers:
        """What the server behind is asked for."""
        asked = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
        return CIMultiDict({**asked, "X-Stream-Protocol-Version": self.upstream_protocol})


def translation_of(request: web.Request, wanted: Wanted | None) -> Translation | None:
    """The translation that a client needs; None: the server behind speaks its protocol.

    `wanted` None: ports are forwarded.
    """
    if wanted is None:
        if not tunnel.is_tunnel(request):
            return None
        return Translation(tunnel.PROTOCOLS, tunnel.UPSTREAM_PROTOCOL, tunnel.tunnel)
    offered = websocket.offered(request)
    if not any(remote_command.PROTOCOLS[name].has_close for name in offered if name in _COMMANDS):
        return None
    talk = partial(_translated, wanted)
    return Translation(_COMMANDS, remote_command.UPSTREAM_PROTOCOL, talk)


async def _translated(
    wanted: Wanted, socket: ClientSocket, ends: Ends, /, *, idle_timeout_s: float
) -> None:
    await remote_command.translate(socket, ends, wanted, idle_timeout_s=idle_timeout_s)


class Bounds(NamedTuple):
    """How many streams there may be; `behind_one`: to one server behind, None for any number."""

    of_user: int
    in_all: int
    behind_one: int | None = None


@dataclass(slots=True)
class Streams:
    """The streams of a program: counted by user, cut together."""

    bounds: Bounds
    open: Counter[object] = field(default_factory=Counter)  # by user
    _behind: dict[str, Counter[object]] = field(default_factory=dict)
    _cuts: set[Callable[[str], None]] = field(default_factory=set)
    _stopping: bool = False

    @contextmanager
    def place(self, user: object, name: str, *, behind: str = "") -> Iterator[None]:
        """Within it one more stream of the user's is counted; ApiError 429, 503.

        Of the streams to one server `behind` a user gets no more than are free: one alone half of
        them, the next half of the rest, and somebody new still gets some.
        """
        if self._stopping:
            raise ApiError(503, "ServiceUnavailable", "this server is stopping", retry_after_s=1)
        owned, in_all, most = self.open[user], self.open.total(), self.bounds.behind_one
        there = self._behind.get(behind) or Counter()
        if owned >= self.bounds.of_user:
            raise _too_many(f'of "{name}" ({owned})')
        if in_all >= self.bounds.in_all:
            raise _too_many(f"of this server ({in_all})")
        if most is not None and there[user] >= most - there.total():
            raise _too_many(
                f'of "{name}" to "{behind}" ({there[user]}, and {there.total()} in all)'
            )
        self._behind[behind] = there
        self.open[user] += 1
        there[user] += 1
        try:
            yield
        finally:
            _take_one(self.open, user)
            _take_one(there, user)
            if not there:
                del self._behind[behind]

    async def carry(
        self, request: web.Request, agreement: Agreement, *, idle_s: float, guarded: bool = False
    ) -> web.StreamResponse:
        """Answer 101 and carry bytes until a side ends. ApiError 400, ConnectionError.

        `guarded`: of SPDY only frames within the bounds reach the server behind.
        """
        connection = httpd.connection_of(request)
        if not connection.is_quiet or connection.transport is None:
            tcp.abort(agreement.transport)
            connection.close()
            raise bad_request("nothing may be sent before the upgrade is agreed to")
        splice = Splice(connection.transport, agreement.transport, idle_s=idle_s, source=connection)
        easy_bytes = None
        if guarded and request.headers["Upgrade"].lower() == SPDY:
            guard = spdy.FrameGuard()
            splice.admit, easy_bytes = partial(_admit, guard, splice.cut), guard.data_left
        connection.hand_over(splice.ends[CLIENT], easy_bytes=easy_bytes)
        connection.sending_bytes = HELD_BYTES
        allow_pauses(request)
        with self._cut_by(splice.cut, agreement, connection):
            response = _Switched(status=101, headers=agreement.headers)
            response.force_close()
            await response.prepare(request)
            _adopt(agreement, splice)
            await splice.run(unsent_bytes=lambda: connection.waiting_bytes - HELD_BYTES)
        log.debug("a stream for %s ended: %s", request.path, splice.why)
        return response

    async def translate(
        self, request: web.Request, agreement: Agreement, translation: Translation, *, idle_s: float
    ) -> web.StreamResponse:
        """The same for a client whose protocol the server behind does not speak."""

        def cut(why: str) -> None:  # the client is told by its own protocol
            agreement.transport.close()

        roomy = len(self._cuts) < ROOMY
        most_bytes = websocket.MAX_MESSAGE_BYTES if roomy else MESSAGE_BYTES
        with self._cut_by(cut, agreement, httpd.connection_of(request)):
            socket = await websocket.accept(request, translation.protocols, most_bytes=most_bytes)
            ends = upstream.streams_of(agreement)
            await translation.talk(socket, ends, idle_timeout_s=idle_s or _FOREVER_S)
        return socket.response

    @contextmanager
    def _cut_by(
        self, cut: Callable[[str], None], agreement: Agreement, client: Connection
    ) -> Iterator[None]:
        looking = loops.spawn(_look_for_ends(client, agreement), name="look for a stream's ends")
        self._cuts.add(cut)
        try:
            yield
        finally:
            looking.cancel()
            agreement.transport.close()
            self._cuts.discard(cut)

    async def close(self) -> None:
        """End all streams, and begin no others."""
        self._stopping = True
        for cut in self._cuts:
            cut("this server is stopping")


async def _look_for_ends(client: Connection, agreement: Agreement) -> None:
    """Each may take nothing for as long as it answers; one that does not is cut."""
    limits = [tcp.PatientLimit(end) for end in (client.socket, agreement.transport) if end]
    while True:
        for limit in limits:
            limit.renew()
        await asyncio.sleep(_LOOK_S)
        if client.has_left():
            client.drop()


def _admit(guard: spdy.FrameGuard, cut: Callable[[str], None], data: bytes) -> bytes:
    try:
        return guard.admit(data)
    except spdy.SpdyError as error:
        cut(f"the client broke the protocol: {error}")
        return b""


def _adopt(agreement: Agreement, splice: Splice) -> None:
    """Give the upstream's bytes to the splice, which the client's answer precedes."""
    if agreement.early:
        splice.received(UPSTREAM, agreement.early)
    if agreement.transport.is_closing():
        splice.side_lost(UPSTREAM)
        return
    agreement.transport.set_protocol(splice.ends[UPSTREAM])
    splice.resume()


def _take_one(counted: Counter[object], user: object) -> None:
    counted[user] -= 1
    if not counted[user]:
        del counted[user]


def _too_many(whose: str) -> ApiError:
    text = f"too many streams {whose} are open: end some, or try again later"
    return ApiError(429, "TooManyRequests", text, retry_after_s=1)


class _Switched(web.StreamResponse):
    """What follows its headers is not HTTP."""

    async def write_eof(self, data: bytes = b"") -> None:
        return None
