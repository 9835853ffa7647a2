"""`nodes/{node}/proxy/…`: requests relayed to a node's agent, answers relayed back, both streamed.

The agent is reached over TLS and must prove its identity: its certificate comes from the agents' CA
and names the node. The server shows its own client certificate, renewed as the files change; the
caller's credentials go no further. Redirects are relayed, never followed; an agent's answer that
upgrades unasked is refused, and `agent_streams` carries upgrades that were asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from orch.client import answers
from orch.client.resolver import Resolver
from orch.component import tls
from orch.component.http import tcp
from orch.component.http.connection import Connection
from orch.component.http.short_heads import ShortHeads
from orch.component.process.daemon import SetupError
from orch.component.streams.upstream import Destination
from orch.component.tls import Renewable, TlsFiles, TlsRenewal
from orch.server.controllers.namespaces import SELF
from orch.server.handlers.call import Call
from orch.server.nodes import address as nodes_address
from orch.server.nodes.address import AgentEndpoint, ProxyId
from orch.server.objects.backend import Backend
from orch.server.objects.document import Attempt, ObjectTarget, decode
from orch.server.strategy import nodes
from orch.wire.errors import ApiError, bad_request, service_unavailable
from orch.wire.names import CORE_VERSION

CONNECT_TIMEOUT_S = 10.0
HEADERS_TIMEOUT_S = 300.0  # a checkpoint may take long before its answer begins
_READ_BYTES = 32 * 1024
_HELD_BYTES = 256 * 1024  # about, of an answer that is relayed and not read
_GONE_CHECK_S = 15.0  # an idle relay notices within this that its client has left
_HOP_BY_HOP = frozenset((
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "expect",
))  # fmt: skip
_SPACES = str.maketrans("", "", " \t")
_CREDENTIALS = ("Authorization", "Cookie")
_IDENTITY_PREFIXES = ("impersonate-", "x-remote-", "x-forwarded-")
_SET_BY_CLIENT_LIBRARY = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


@dataclass(slots=True)
class NodeProxy:
    """`handle` is the connector of `nodes/proxy`; `close` closes kept connections."""

    backend: Backend
    tls: ssl.SSLContext | None
    allow_local: bool = False
    name: str = field(default="node proxy", init=False)
    _resolver: Resolver = field(default_factory=Resolver, init=False)
    _session: aiohttp.ClientSession | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)

    async def handle(self, call: Call) -> web.StreamResponse:
        """ApiError 400, 404, 503; the agent's answer is relayed unchanged."""
        request, info = call.request, call.info
        wanted, path = parse(call)
        endpoint = self._endpoint(wanted)
        if not info.rest and request.method in ("GET", "HEAD"):
            return _to_trailing_slash(request)
        await self.ask_webhooks(call, path)
        with _only_for_client(request):
            body = request.content if request.body_exists else None
            headers = _forwarded_headers(request)
            async with await self._request(
                request.method, wanted, endpoint, path, data=body, headers=headers
            ) as upstream:
                return await relay(request, upstream)

    async def ask_webhooks(self, call: Call, path: str) -> None:
        """Whether the path may be asked for; ApiError of a refusal."""
        asked = path.partition("?")[0]
        options = {"kind": "NodeProxyOptions", "apiVersion": CORE_VERSION, "path": asked}
        attempt = Attempt("CONNECT", options, kind=(CORE_VERSION, "NodeProxyOptions"))
        await self.backend.ask_webhooks(call.target(), attempt)

    async def ask(self, node: str, path: str) -> aiohttp.ClientResponse:
        """GET a path (with its query) of a node's agent, for the server itself.

        The caller must close the answer. ApiError 400, 404, 503.
        """
        wanted = ProxyId(node)
        return await self._request("GET", wanted, self._endpoint(wanted), path)

    async def destination(self, node: ProxyId) -> Destination:
        """Where and how to dial a node's agent; ApiError 400, 404, 503."""
        endpoint = self._endpoint(node)
        address = await self._resolve(endpoint)
        if endpoint.scheme != "https":
            return Destination(address, endpoint.port)
        return Destination(address, endpoint.port, self._require_tls(), node.name)

    def renew(self, context: ssl.SSLContext, *, end_connections: bool) -> None:
        """Use the context for new connections; running answers continue."""
        self.tls = context

    async def close(self) -> None:
        """Break off running answers and refuse later requests."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _endpoint(self, wanted: ProxyId) -> AgentEndpoint:
        target = ObjectTarget(nodes.NODE_STRATEGY, SELF, name=wanted.name)
        endpoint = nodes_address.endpoint_of(decode(self.backend.find(target)), wanted)
        if endpoint is None:
            raise service_unavailable(
                f'error trying to reach service: node "{wanted.name}" has not reported an address'
            )
        return endpoint

    async def _request(
        self, method: str, wanted: ProxyId, endpoint: AgentEndpoint, path: str, **sent: Any
    ) -> aiohttp.ClientResponse:
        address = await self._resolve(endpoint)
        host = f"[{address}]" if ":" in address else address
        secure = endpoint.scheme == "https"
        verified = self._require_tls() if secure else True
        limit = asyncio.timeout(HEADERS_TIMEOUT_S)
        try:
            async with limit:
                answer = await self._client().request(
                    method,
                    URL(f"{endpoint.scheme}://{host}:{endpoint.port}{path}", encoded=True),
                    skip_auto_headers=_SET_BY_CLIENT_LIBRARY,
                    allow_redirects=False,
                    ssl=verified,
                    server_hostname=wanted.name if secure else None,
                    **sent,
                )
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            if limit.expired():
                text = f"it did not begin to answer within {HEADERS_TIMEOUT_S:g} s"
                raise _unreachable(wanted, TimeoutError(text)) from error
            raise _unreachable(wanted, error) from error
        if answer.status < 200:
            answer.close()
            raise _unreachable(wanted, ValueError(f"it answered {answer.status} without need"))
        return answer

    def _require_tls(self) -> ssl.SSLContext:
        if self.tls is None:
            raise service_unavailable(
                "error trying to reach service: this server has no CA to verify node agents with;"
                " start it with --nodeagent-certificate-authority"
            )
        return self.tls

    async def _resolve(self, endpoint: AgentEndpoint) -> str:
        """An allowed address; resolved here, so that exactly the checked address is called."""
        addresses = [endpoint.host]
        if not nodes_address.is_address(endpoint.host):
            addresses = await self._look_up(endpoint)
        for address in addresses:
            if nodes_address.is_allowed(address, allow_local=self.allow_local):
                return address
        raise bad_request(
            f"address not allowed: {', '.join(addresses)} (loopback and link-local nodes need"
            " --node-proxy-allow-loopback)"
        )

    async def _look_up(self, endpoint: AgentEndpoint) -> list[str]:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                found = await self._resolver.resolve(endpoint.host, endpoint.port, socket.AF_UNSPEC)
        except OSError as error:
            why = error.strerror or f"no answer within {CONNECT_TIMEOUT_S:g} s"
            raise service_unavailable(
                f"error trying to reach service: cannot resolve {endpoint.host}: {why}"
            ) from error
        return [address["host"] for address in found]

    def _client(self) -> aiohttp.ClientSession:
        if self._closed:
            raise service_unavailable("error trying to reach service: this server is stopping")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=ShortHeads(
                    limit=0, keepalive_timeout=60.0, socket_factory=tcp.make_socket
                ),
                read_bufsize=_READ_BYTES,
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
            )
        return self._session


def parse(call: Call) -> tuple[ProxyId, str]:
    """The node, and the path at its agent with its query; ApiError 400."""
    query = call.request.rel_url.raw_query_string
    if "dryRun" in call.request.query:
        raise bad_request("the dryRun option is not supported by the proxy")
    try:
        path = nodes_address.agent_path(call.info.rest)
        return nodes_address.parse_id(call.info.name), path + (f"?{query}" if query else "")
    except ValueError as error:
        raise bad_request(f"invalid node request: {error}") from None


@contextlib.contextmanager
def _only_for_client(request: web.Request) -> Iterator[None]:
    """Within it the request ends when its client leaves, whatever its method."""
    connection = request.protocol
    if isinstance(connection, Connection):
        connection.only_for_client = True
    try:
        yield
    finally:
        if isinstance(connection, Connection):
            connection.only_for_client = False


def _to_trailing_slash(request: web.Request) -> web.Response:
    query = request.rel_url.raw_query_string
    location = f"{request.rel_url.raw_path}/" + (f"?{query}" if query else "")
    return web.Response(status=301, headers={"Location": location})


def _forwarded_headers(request: web.Request) -> CIMultiDict[str]:
    headers = _end_to_end(request.headers)
    for name in _CREDENTIALS:
        headers.popall(name, None)
    for name in list(headers):
        if name.lower().startswith(_IDENTITY_PREFIXES):
            headers.popall(name, None)
    headers["X-Forwarded-Uri"] = request.rel_url.raw_path
    headers["X-Forwarded-Host"] = request.host
    headers["X-Forwarded-Proto"] = request.scheme
    headers["X-Forwarded-For"] = request.remote or "unknown"
    return headers


def _end_to_end(headers: Mapping[str, str] | CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The headers without the hop-by-hop ones, including those that Connection names."""
    listed = ",".join(v for k, v in headers.items() if k.lower() == "connection")
    dropped = _HOP_BY_HOP.union(listed.lower().translate(_SPACES).split(","))
    return CIMultiDict((k, v) for k, v in headers.items() if k.lower() not in dropped)


async def relay(
    request: web.Request, upstream: aiohttp.ClientResponse, headers: Mapping[str, str] | None = None
) -> web.StreamResponse:
    """Stream the agent's answer; a break on either side breaks the other: no truncation.

    `headers` replace the agent's.
    """
    if headers is None:
        headers = _end_to_end(upstream.headers)
        if "Location" in headers:
            headers["Location"] = _located(request, headers["Location"])
    response = web.StreamResponse(status=upstream.status, headers=headers)
    await response.prepare(request)
    if isinstance(request.protocol, Connection):
        request.protocol.sending_bytes = _HELD_BYTES
    try:
        while chunk := await _next_chunk(request, upstream):
            await response.write(chunk)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ConnectionError(f"the node's answer broke off: {error}") from error
    await response.write_eof()
    return response


async def _next_chunk(request: web.Request, upstream: aiohttp.ClientResponse) -> bytes:
    """The agent's next chunk, b"" at the end; ConnectionError when the client has left."""
    while True:
        try:
            async with asyncio.timeout(_GONE_CHECK_S):
                return await upstream.content.readany()
        except TimeoutError:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionError("the client left before the answer ended") from None


def _located(request: web.Request, location: str) -> str:
    """A redirect within the agent, rewritten for the proxy; a redirect elsewhere is unchanged."""
    if not location.startswith("/") or location.startswith("//"):
        return location
    before, proxy, _ = request.rel_url.raw_path.partition("/proxy")
    return f"{before}{proxy}{location}"


def _unreachable(wanted: ProxyId, error: Exception) -> ApiError:
    cause = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError):
        where = f"{error.host}:{error.port}"
        cause = str(answers.explain(error, where, CONNECT_TIMEOUT_S))
    return service_unavailable(f'error trying to reach service: node "{wanted.name}": {cause}')


@dataclass(frozen=True, slots=True)
class AgentTls:
    """`ca_file` None: agents cannot be verified, so they are not called."""

    ca_file: str | None
    cert_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext | None:
        """SetupError names the file that cannot be used."""
        return None if self.ca_file is None else self._read(self.ca_file)

    def files(self) -> TlsFiles:
        """The files in their present state, read before the context is made from them."""
        pair = [file for file in (self.cert_file, self.key_file) if file]
        return TlsFiles(pair, self.ca_file)

    def renewal(self, user: Renewable, files: TlsFiles) -> TlsRenewal | None:
        """The renewal of `user`'s context as the files change; None when no agent is called."""
        if (ca_file := self.ca_file) is None:
            return None
        words = "client certificate", "node agent CA"
        return TlsRenewal(user, lambda: self._read(ca_file), files, words=words)

    def _read(self, ca_file: str) -> ssl.SSLContext:
        # Like all other clients here; `create_default_context` of Python 3.13 refuses CAs without
        # key usage, which is what `openssl req -x509` makes.
        context = tls.client_context()
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ValueError) as error:
            raise SetupError(f"cannot use the node agent CA {ca_file}: {error}") from error
        if self.cert_file and self.key_file:
            tls.load_certificate(context, self.cert_file, self.key_file)
        return context
