"""HTTP to a server over persistent TLS connections, with timeouts and descriptive errors.

Requests share connections; every stream has one of its own, dialled with the credentials of then.
Knows nothing of resources or records. aiohttp is imported with the first connection, so that a
command which needs no server starts fast.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
import math
import ssl
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from orch.client import answers, tls
from orch.client.answers import Response, Stream, TransportError
from orch.client.kubeconfig import ClientConfig
from orch.component.http import tcp
from orch.component.process import clock
from orch.component.process.daemon import SetupError
from orch.component.process.threads import SingleFlight
from orch.wire.times import format_time

if TYPE_CHECKING:
    import aiohttp
    import yarl

    from orch.client.resolver import Resolver

    Send = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]
    Judge = Callable[[aiohttp.ClientRequest, Send], Awaitable[aiohttp.ClientResponse]]

_KEEPALIVE_S = 60.0  # below the servers' 75 s, so that a reused connection is still open
_REFUSAL_BYTES = 2**20
_ANEW = "its connections are dialled anew"
BUCKETS_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
TOKEN_AGE_S = 60.0  # a rotated token file is read again after this

PATCH_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
APPLY_TYPE = "application/apply-patch+yaml"
_UNPROTECTED = "a token or password is not sent to another machine over plain http"

__all__ = [
    "APPLY_TYPE",
    "PATCH_TYPES",
    "Response",
    "Stream",
    "Transport",
    "TransportError",
    "given",
]


@dataclass(frozen=True, slots=True)
class _Call:
    method: str
    path: str
    params: Mapping[str, str] | None
    accept: str
    body: bytes | None = None
    content_type: str | None = None


class Transport:
    """Connections to one server; use from one event loop, `close` at the end."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        timeout_s: float = 10.0,
        user_agent: str = "orch-client",
        headers: Iterable[tuple[str, str]] = (),
    ) -> None:
        """`headers` are sent with every request; names may repeat."""
        self.config = config
        self.timeout_s = timeout_s
        self.requests: Counter[tuple[str, str]] = Counter()  # by code and method
        self.durations: Counter[tuple[str, float]] = Counter()  # by method and bucket
        self.seconds: dict[str, float] = {}  # by method, until the head of the answer
        # Compressed answers would be unpacked on the event loop.
        self._headers = [("User-Agent", user_agent), ("Accept-Encoding", "identity"), *headers]
        self._session: aiohttp.ClientSession | None = None
        self._streams: set[Stream] = set()
        self._resets = 0
        self._resolver: Resolver | None = None
        self._tls = SingleFlight(self._read_tls, name="TLS files")
        self.certificate_end: datetime | None = None  # of the client certificate in use
        self._token_file = SingleFlight(lambda: _read_token(config.token_file), name="token file")
        self._token = ""
        self._token_read_s = float("-inf")

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str = "application/json",
        timeout_s: float | None = None,
        most_bytes: int | None = None,
    ) -> Response:  # fmt: skip
        """Send and read the whole response; `path` is already percent-encoded.

        Every status is returned; TransportError without a response within `timeout_s`. After a 401
        the next request reconnects: certificates and token may have been replaced meanwhile.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        call = _Call(method, path, params, accept, body, content_type)
        with self._explaining(limit_s):
            async with asyncio.timeout(limit_s or None):
                async with await self._send(await self._open(), call) as response:
                    body = await answers.whole(response, self.config.server, most_bytes)
            answer = Response(response.status, body, response.headers)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            await self.reset()
        return answer

    @contextlib.asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
        silence_s: float = 0.0,
    ) -> AsyncIterator[Stream]:
        """Yield the response to a GET as it arrives; it ends after `silence_s` without a byte.

        0 waits forever (TCP keep-alive still ends a dead connection).
        """
        call = _Call("GET", path, params, accept)
        resets = self._resets
        async with contextlib.AsyncExitStack() as ends:
            with self._explaining(self.timeout_s):
                async with asyncio.timeout(self.timeout_s or None):
                    session = await ends.enter_async_context(await self._dial())
                    response = await self._send(session, call)
            ends.callback(_cut, response)
            stream = Stream(response, self.config.server, silence_s)
            if self._resets != resets:  # meanwhile: it may show certificates of before
                stream.break_off(_ANEW)
            if response.status == HTTPStatus.UNAUTHORIZED:
                await self.reset()
            self._streams.add(stream)
            ends.callback(self._streams.discard, stream)
            yield stream

    @contextlib.asynccontextmanager
    async def websocket(
        self, target: str, protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse | Response]:
        """Open a WebSocket, of a connection of its own; `target` is a path with its query, encoded.

        Any answer but an agreement is the Response. A message has at most 4 MiB.
        """
        refused: list[Response] = []

        async def judge(request: aiohttp.ClientRequest, send: Send) -> aiohttp.ClientResponse:
            answer = await send(request)
            if answer.status == HTTPStatus.SWITCHING_PROTOCOLS:
                return answer
            with contextlib.closing(answer):
                body = await answers.beginning(answer, _REFUSAL_BYTES)
            refused.append(Response(answer.status, body, answer.headers))
            raise TransportError("refused")  # or a redirection would be followed

        async with contextlib.AsyncExitStack() as ends:
            opened: aiohttp.ClientWebSocketResponse | Response
            try:
                with self._explaining(self.timeout_s):
                    async with asyncio.timeout(self.timeout_s or None):
                        session = await ends.enter_async_context(await self._dial(judge))
                        url, credentials = await self._address(target)
                        opened = await session.ws_connect(
                            url,
                            protocols=protocols,
                            headers=credentials,
                            server_hostname=self.config.tls_server_name or None,
                        )
                        ends.push_async_callback(opened.close)
            except TransportError:
                if not refused:
                    raise
                opened = refused[0]
            yield opened

    async def reset(self) -> None:
        """Drop every connection; the next request reads the certificates again and reconnects.

        Streams end with a TransportError, so that their readers reconnect, too.
        """
        session, self._session = self._session, None
        self._token_read_s = float("-inf")
        self._resets += 1
        for stream in self._streams:
            stream.break_off(_ANEW)
        if session is not None:
            await session.close()

    async def close(self) -> None:
        await self.reset()

    async def _send(self, session: aiohttp.ClientSession, call: _Call) -> aiohttp.ClientResponse:
        url, credentials = await self._address(call.path)
        headers = {"Accept": call.accept, **credentials}
        if call.content_type:
            headers["Content-Type"] = call.content_type
        code, began_s = "<error>", asyncio.get_running_loop().time()
        try:
            answer = await session.request(
                call.method,
                url.update_query(call.params) if call.params else url,
                data=call.body,
                headers=headers,
                allow_redirects=False,
                server_hostname=self.config.tls_server_name or None,
            )
            code = str(answer.status)
        finally:
            self.requests[code, call.method] += 1
            self._count_time(call.method, asyncio.get_running_loop().time() - began_s)
        return answer

    async def _address(self, target: str) -> tuple[yarl.URL, dict[str, str]]:
        """The URL of a path, and the credentials to send there; SetupError."""
        import yarl

        credentials = await self._authorization()
        url = yarl.URL(self.config.server + target, encoded=True)
        if credentials and url.scheme != "https" and not _is_this_machine(url.host or ""):
            raise SetupError(_UNPROTECTED)
        return url, credentials

    def _count_time(self, method: str, seconds: float) -> None:
        bucket = next((bound for bound in BUCKETS_S if seconds <= bound), math.inf)
        self.durations[method, bucket] += 1
        self.seconds[method] = self.seconds.get(method, 0.0) + seconds

    @contextlib.contextmanager
    def _explaining(self, limit_s: float) -> Iterator[None]:
        """TransportError for a call without a usable answer.

        Also for one that `reset` ended: aiohttp cancels who waits for the look-up of a name then,
        and a loop cancelled by nobody would end without a word.
        """
        try:
            yield
        except answers.failures() as error:
            raise self._explained(error, limit_s) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise TransportError(f"cannot reach {self.config.server}: {_ANEW}") from error

    def _explained(self, error: Exception, limit_s: float) -> TransportError:
        if isinstance(error, TimeoutError) and (
            self._tls.is_running or self._token_file.is_running
        ):
            error = SetupError(f"reading its certificates or token takes more than {limit_s:g} s")
        elif answers.may_be_refused_certificate(error):
            end = self.certificate_end
            if end is not None and end < clock.utc_now():
                error = SetupError(f"the client certificate expired on {format_time(end)}")
        return answers.explain(error, self.config.server, limit_s)

    def _read_tls(self) -> ssl.SSLContext:
        context = tls.client_context(self.config)
        self.certificate_end = tls.certificate_end(self.config)
        return context

    async def _open(self) -> aiohttp.ClientSession:
        """The session that requests share."""
        if self._session is None:
            dialled = await self._dial()
            if self._session is None:  # still: a concurrent call may have opened it
                self._session = dialled
            else:
                await dialled.close()
        return self._session

    async def _dial(self, judge: Judge | None = None) -> aiohttp.ClientSession:
        """A session with connections of its own, and the certificates as they are now; `judge`
        stands between it and every answer.
        """
        import aiohttp

        from orch.client.resolver import Resolver

        https = self.config.server.startswith("https://")
        context = await self._tls.run() if https else True
        self._resolver = self._resolver or Resolver()
        connector = aiohttp.TCPConnector(
            ssl=context,
            keepalive_timeout=_KEEPALIVE_S,
            socket_factory=tcp.make_socket,
            resolver=self._resolver,
        )
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            middlewares=(judge,) if judge else (),
        )

    async def _authorization(self) -> dict[str, str]:
        config = self.config
        token = config.token or await self._file_token()
        if token:
            return {"Authorization": f"Bearer {token}"}
        if config.username:
            pair = f"{config.username}:{config.password}".encode()
            return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
        return {}

    async def _file_token(self) -> str:
        now_s = asyncio.get_running_loop().time()
        if self.config.token_file and now_s - self._token_read_s > TOKEN_AGE_S:
            self._token = await self._token_file.run()
            self._token_read_s = now_s
        return self._token


def given(**params: str) -> dict[str, str]:
    """Query parameters without the empty ones."""
    return {key: value for key, value in params.items() if value}


def _cut(response: aiohttp.ClientResponse) -> None:
    """Abort the connection, without waiting for the rest of a stream or for TLS to close."""
    if response.connection is not None:
        tcp.abort(response.connection.transport)
    response.close()


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_token(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise SetupError(f"cannot read the token file {path}: {why}") from None
