"""`pods/exec`, `pods/attach`, `pods/portforward`: a client joined to the agent of the pod's node.

What is asked for is checked here, so that a mistake gets the same answer wherever the pod runs;
after the agent has agreed, bytes are carried unread. A refusal by the agent becomes a Status.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from urllib.parse import quote, urlencode

from aiohttp import web
from multidict import MultiMapping

from orch.component.streams import upgrade
from orch.component.streams.upstream import Refused
from orch.server.handlers.call import Call
from orch.server.nodes.address import ProxyId
from orch.server.nodes.agent_streams import METHODS, AgentStreams
from orch.server.nodes.pod_logs import container_of
from orch.server.objects.backend import Backend
from orch.server.objects.document import Attempt, Document, decode
from orch.server.request.attributes import is_true
from orch.server.strategy.pods import node_of
from orch.wire.errors import ApiError, bad_request
from orch.wire.names import CORE_VERSION

MAX_PORTS = 64
MAX_COMMAND_BYTES = 64 * 1024
_FLAGS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_KINDS = {
    "exec": (CORE_VERSION, "PodExecOptions"),
    "attach": (CORE_VERSION, "PodAttachOptions"),
    "portforward": (CORE_VERSION, "PodPortForwardOptions"),
}
_REASONS = {400: "BadRequest", 404: "NotFound", 429: "TooManyRequests", 504: "Timeout"}

Query = MultiMapping[str]
Handler = Callable[[Call], Awaitable[web.StreamResponse]]


class PodStreams:
    """The connectors by subresource are `handlers`."""

    def __init__(self, backend: Backend, agents: AgentStreams) -> None:
        self._backend = backend
        self._agents = agents

    def handlers(self) -> Mapping[tuple[str, str], Handler]:
        return {("pods", name): self.handle for name in ("exec", "attach", "portforward")}

    async def handle(self, call: Call) -> web.StreamResponse:
        """ApiError 400, 404, 429, and 503 when the agent is out of reach."""
        request, info = call.request, call.info
        if request.method not in METHODS:
            raise web.HTTPMethodNotAllowed(request.method, METHODS)
        headers = upgrade.upgrade_headers(request)
        pod = decode(self._backend.find(call.target()))
        target = _target(info.subresource, pod, request.query)
        if not (node := node_of(pod)):
            raise bad_request(f"pod {info.name} does not have a host assigned")
        attempt = Attempt(
            "CONNECT", _options(info.subresource, request.query), kind=_KINDS[info.subresource]
        )
        await self._backend.ask_webhooks(call.target(), attempt)
        try:
            return await self._agents.join(call, ProxyId(node), target, headers)
        except Refused as error:
            raise _refusal(error) from error


def _options(subresource: str, query: Query) -> Document:
    """What is asked for, as webhooks see it; checked before."""
    api_version, kind = _KINDS[subresource]
    options: Document = {"kind": kind, "apiVersion": api_version}
    if subresource == "portforward":
        return {**options, "ports": [int(text) for text in _ports(query)]}
    options |= {name: True for name in _FLAGS if is_true(query.get(name))}
    if container := query.get("container"):
        options["container"] = container
    return options if subresource == "attach" else {**options, "command": _command(query)}


def _target(subresource: str, pod: Document, query: Query) -> str:
    """The path at the agent, with its query; ApiError 400."""
    metadata = pod["metadata"]
    place = [metadata["namespace"], metadata["name"]]
    if subresource == "portforward":
        parts = ["portForward", *place]
        asked = [("port", text) for text in _ports(query)]
    else:
        parts = [subresource, *place, container_of(pod, query.get("container", ""))]
        asked = list(_flags(query))
        if subresource == "exec":
            asked += [("command", word) for word in _command(query)]
    path = "/".join(quote(part, safe="") for part in parts)
    return f"/{path}?{urlencode(asked)}" if asked else f"/{path}"


def _flags(query: Query) -> Iterator[tuple[str, str]]:
    wanted = [name for name in _FLAGS if is_true(query.get(name))]
    if not set(wanted) - {"tty"}:
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    for name in wanted:
        if not (name == "stderr" and "tty" in wanted):
            yield _FLAGS[name], "1"


def _command(query: Query) -> list[str]:
    words = query.getall("command", [])
    if not words or not words[0]:
        raise bad_request("command: a command is required")
    if sum(len(word.encode(errors="surrogateescape")) for word in words) > MAX_COMMAND_BYTES:
        raise bad_request(f"command: it has over {MAX_COMMAND_BYTES} bytes")
    return words


def _ports(query: Query) -> list[str]:
    """As WebSockets name them; over SPDY the client names them in the stream."""
    texts = query.getall("ports", [])
    if len(texts) > MAX_PORTS:
        raise bad_request(f"ports: over {MAX_PORTS} are asked for")
    for text in texts:
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536):
            raise bad_request(f"ports: {text[:20]!r} is not a number from 1 to 65535")
    return texts


def _refusal(error: Refused) -> ApiError:
    text = str(error) or f"the node's agent answered {error.status}"
    if error.status in _REASONS:
        return ApiError(error.status, _REASONS[error.status], text)
    return ApiError(500, "InternalError", f"the node's agent answered {error.status}: {text}")
