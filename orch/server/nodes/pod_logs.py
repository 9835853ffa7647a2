"""`pods/{pod}/log`: a container's log, fetched from the agent of the pod's node and relayed.

The options are checked here, so that a mistake gets the same answer wherever the pod runs; the log
itself is streamed unchanged, as the body or, for browsers, as the messages of a WebSocket. A
refusal by the agent becomes a Status.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote, urlencode

import aiohttp
from aiohttp import WSCloseCode, web

from orch.client import answers
from orch.component.http.connection import allow_pauses
from orch.component.process import loops
from orch.component.streams import websocket
from orch.server.handlers.call import Call
from orch.server.nodes.proxy import NodeProxy, relay
from orch.server.objects.backend import Backend
from orch.server.objects.document import Document, decode
from orch.server.request.attributes import is_true
from orch.server.strategy.pods import node_of
from orch.wire import causes
from orch.wire.errors import ApiError, Cause, bad_request, invalid
from orch.wire.podrules.podspec import document_places
from orch.wire.times import is_time

_BOOLEANS = ("follow", "previous", "timestamps")
_NUMBERS = {"sinceSeconds": 1, "tailLines": 0, "limitBytes": 1}  # with the least they may be
_TEXT = {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
_SUB_PROTOCOLS = ("", "binary.k8s.io", "base64.binary.k8s.io")
_REASONS = {400: "BadRequest", 404: "NotFound"}
_REFUSAL_MAX_BYTES = 64 * 1024
_REFUSAL_WITHIN_S = 10.0


class PodLogs:
    """`handle` is the connector of `pods/log`."""

    def __init__(self, backend: Backend, proxy: NodeProxy) -> None:
        self._backend = backend
        self._proxy = proxy

    async def handle(self, call: Call) -> web.StreamResponse:
        """ApiError 400, 404, 422, and 503 when the agent is out of reach."""
        if call.info.verb != "get":
            raise web.HTTPMethodNotAllowed(call.request.method, ("GET",))
        query = log_query(call.info.name, call.request.query)
        pod = decode(self._backend.find(call.target()))
        container = container_of(pod, call.request.query.get("container", ""))
        node = node_of(pod)
        if not node:
            return web.Response(text="")  # nothing logged yet
        place = "/".join(quote(p) for p in (call.info.namespace, call.info.name, container))
        path = f"/containerLogs/{place}" + (f"?{query}" if query else "")
        async with await self._proxy.ask(node, path) as upstream:
            if upstream.status != 200:
                raise await _refusal(upstream)
            if call.request.headers.get("Upgrade", "").lower() == "websocket":
                return await _send_messages(call.request, upstream)
            allow_pauses(call.request)
            return await relay(call.request, upstream, _TEXT)


async def _send_messages(
    request: web.Request, upstream: aiohttp.ClientResponse
) -> web.StreamResponse:
    """The log as messages, until it ends or the client leaves."""
    socket = await websocket.accept(request, _SUB_PROTOCOLS, most_bytes=websocket.LITTLE_BYTES)
    as_text = socket.protocol.startswith("base64")

    async def send() -> None:
        while chunk := await upstream.content.readany():
            await socket.send(base64.b64encode(chunk) if as_text else chunk, is_text=as_text)

    async def wait_gone() -> None:
        while await socket.receive() is not None:
            """Whatever a client sends here means nothing."""

    try:
        await loops.first(send(), wait_gone(), name="send a log")
        await socket.close()
    except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
        await socket.close(WSCloseCode.INTERNAL_ERROR, f"the log broke off: {error}")
    return socket.response


def log_query(pod: str, query: Mapping[str, str]) -> str:
    """The options as the agent takes them, encoded; ApiError 422 for invalid values."""
    found = tuple(_option_causes(query))
    if found:
        raise invalid("PodLogOptions", pod, found)
    wanted = {name: "true" for name in _BOOLEANS if is_true(query.get(name))}
    for name in (*_NUMBERS, "sinceTime"):
        if query.get(name):
            wanted[name] = query[name]
    return urlencode(wanted)


def _option_causes(query: Mapping[str, str]) -> Iterator[Cause]:
    for name, least in _NUMBERS.items():
        text = query.get(name, "")
        if text and not _is_at_least(text, least):
            yield causes.invalid_value(name, text, f"must be a whole number of at least {least}")
    since = query.get("sinceTime", "")
    if since and query.get("sinceSeconds"):
        yield causes.forbidden("sinceSeconds", "at most one of sinceTime or sinceSeconds")
    if since and not is_time(since):
        yield causes.invalid_value("sinceTime", since, "must be an RFC 3339 time")


def _is_at_least(text: str, least: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19 and int(text) >= least


def container_of(pod: Document, asked: str) -> str:
    """The container asked for, or the only container; ApiError 400."""
    name = pod["metadata"]["name"]
    spec = pod.get("spec") or {}
    known: list[str] = [c["name"] for _, c in document_places(spec)]
    if asked:
        if asked not in known:
            raise bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    first: Sequence[str] = [c["name"] for c in spec.get("containers") or ()]
    if len(known) == 1:
        return known[0]
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(first)}]"
    others = [other for other in known if other not in first]
    raise bad_request(
        text + (f" or one of the init containers: [{' '.join(others)}]" if others else "")
    )


async def _refusal(upstream: aiohttp.ClientResponse) -> ApiError:
    try:
        async with asyncio.timeout(_REFUSAL_WITHIN_S):
            body = await answers.beginning(upstream, _REFUSAL_MAX_BYTES)
    except (aiohttp.ClientError, answers.TransportError, TimeoutError):
        body = b""
    text = body.decode(errors="replace").strip() or f"the node's agent answered {upstream.status}"
    if upstream.status in _REASONS:
        return ApiError(upstream.status, _REASONS[upstream.status], text)
    return ApiError(500, "InternalError", f"the node's agent answered {upstream.status}: {text}")
