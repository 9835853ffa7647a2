"""`/exec`, `/attach`, `/portForward` and `/run`: a caller's way into a container or a pod.

The first three are upgrades: the runtime is asked where its streaming server waits, and the bytes
of both are carried to and fro. `/run` waits for a command's end and answers with its output. Paths,
parameters and what they mean are the reference agent's. Must not know who may (`auth.access`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from nodeagent.auth.access import IDENTITY
from nodeagent.pods.observed import is_ready
from nodeagent.pods.registry import PodRegistry
from nodeagent.runtime.base import (
    ContainerRuntime,
    RuntimeCallError,
    RuntimeNotFound,
    RuntimeTimeout,
    RuntimeUnavailable,
)
from nodeagent.runtime.endpoint import StreamAddress, StreamOptions
from orch.component.http import httpd
from orch.component.streams import upgrade
from orch.component.streams.remote_command import Wanted
from orch.component.streams.spares import Spares
from orch.component.streams.upgrade import Bounds, Streams
from orch.component.streams.upstream import (
    Agreement,
    Destination,
    Headers,
    Refused,
    Unreachable,
)
from orch.wire.errors import ApiError, bad_request, service_unavailable
from orch.wire.podrules.podspec import container_statuses, find_container
from orch.wire.records.pods import Container, ContainerState, Pod

log = logging.getLogger(__name__)

BOUNDS = Bounds(of_user=256, in_all=384)  # the API server is one user; a port-forward is one stream
MAX_PORTS = 64
MAX_COMMAND_BYTES = 64 * 1024
_REASONS: tuple[tuple[type[RuntimeCallError], int, str], ...] = (
    (RuntimeNotFound, 404, "NotFound"),
    (RuntimeTimeout, 504, "Timeout"),
    (RuntimeUnavailable, 503, "ServiceUnavailable"),
    (RuntimeCallError, 500, "InternalError"),
)
_PLACE = "{namespace}/{pod}"
Opening = Awaitable[StreamAddress]


class ContainerStreams:
    """The handlers, registered by `add_to`.

    `idle_s` is how long a stream may be silent, 0 for ever; `run_timeout_s` how long a command of
    `/run` may take.
    """

    def __init__(
        self,
        registry: PodRegistry,
        runtime: ContainerRuntime,
        *,
        idle_s: Callable[[], float],
        run_timeout_s: Callable[[], float],
    ) -> None:
        self._registry = registry
        self._runtime = runtime
        self._idle_s = idle_s
        self._run_timeout_s = run_timeout_s
        self._streams = Streams(BOUNDS)
        self._spares = Spares()  # to the runtime's streaming server

    def add_to(self, app: web.Application) -> None:
        for name, handler in (("exec", self.exec), ("attach", self.attach)):
            for place in (f"{_PLACE}/{{container}}", f"{_PLACE}/{{uid}}/{{container}}"):
                _add(app, ("GET", "POST"), f"/{name}/{place}", handler)
        for place in (_PLACE, f"{_PLACE}/{{uid}}"):
            _add(app, ("GET", "POST"), f"/portForward/{place}", self.port_forward)
        for place in (f"{_PLACE}/{{container}}", f"{_PLACE}/{{uid}}/{{container}}"):
            _add(app, ("POST",), f"/run/{place}", self.run)
        app.on_shutdown.append(self._close)

    async def exec(self, request: web.Request) -> web.StreamResponse:
        pod, container = self._container(request)
        command = _command(request.query.getall("command", ()))
        streams = _streams(request, tty=request.query.get("tty") == "1")
        id_ = self._running(pod, container)
        return await self._carry(
            request, lambda: self._runtime.open_exec(id_, command, streams), _wanted(streams)
        )

    async def attach(self, request: web.Request) -> web.StreamResponse:
        pod, container = self._container(request)
        # Whether it has a terminal was decided when it was made.
        streams = _streams(request, tty=bool(container.tty))
        id_ = self._running(pod, container)
        return await self._carry(
            request, lambda: self._runtime.open_attach(id_, streams), _wanted(streams)
        )

    async def port_forward(self, request: web.Request) -> web.StreamResponse:
        pod = self._pod(request)
        ports = parse_ports(request.query.getall("port", ()))
        sandbox = self._registry.view(pod.metadata.uid or "").sandbox
        if sandbox is None or not is_ready(sandbox):
            raise bad_request(f'pod "{pod.metadata.name}" is not running')
        id_ = sandbox.sandbox.id
        return await self._carry(request, lambda: self._runtime.open_port_forward(id_, ports), None)

    async def run(self, request: web.Request) -> web.Response:
        """As the reference: the command is split at spaces, the outputs are put together."""
        pod, container = self._container(request)
        command = _command(request.query.get("cmd", "").split(" "))
        id_ = self._running(pod, container)
        timeout_s = self._run_timeout_s()
        try:
            result = await self._runtime.exec_sync(id_, command, timeout_s=timeout_s)
        except RuntimeCallError as error:
            raise _refused(error) from error
        output = result.stdout + result.stderr
        if result.exit_code:
            said = output.decode(errors="replace").strip()
            text = f"command terminated with exit code {result.exit_code}: {said}"
            raise ApiError(500, "InternalError", text)
        return web.Response(body=output, content_type="application/json")

    async def _carry(
        self, request: web.Request, opening: Callable[[], Opening], wanted: Wanted | None
    ) -> web.StreamResponse:
        """Open the stream at the runtime and join it to the client's connection."""
        headers, method = upgrade.upgrade_headers(request), request.method
        translation = upgrade.translation_of(request, wanted)
        if translation is not None:
            headers, method = translation.upgrade_headers(), "POST"
        user = request[IDENTITY].name
        with self._streams.place(user, user):
            to, agreement = await self._agreement(opening, method, headers)
            # The API server asks for all tenants: the time that frames take is the namespace's.
            httpd.connection_of(request).owner = request.match_info["namespace"]
            idle_s = self._idle_s()
            with self._spares.kept_for(to):
                if translation is None:
                    return await self._streams.carry(
                        request, agreement, idle_s=idle_s, guarded=True
                    )
                return await self._streams.translate(request, agreement, translation, idle_s=idle_s)

    async def _agreement(
        self, opening: Callable[[], Opening], method: str, headers: Headers
    ) -> tuple[Destination, Agreement]:
        """The runtime's streaming server, and what it agrees to; ApiError."""
        try:
            address = await opening()
            destination = Destination(address.host, address.port)
            return destination, await self._spares.dial(
                destination, method, address.target, headers
            )
        except RuntimeCallError as error:
            raise _refused(error) from error
        except Refused as error:
            raise _refused_by_streaming_server(error) from error
        except Unreachable as error:
            text = f"the runtime's streaming server is of no use: {error}"
            raise service_unavailable(text) from error

    def _pod(self, request: web.Request) -> Pod:
        names = request.match_info
        pod = self._registry.find(names["namespace"], names["pod"])
        if pod is None or names.get("uid", pod.metadata.uid) != pod.metadata.uid:
            raise ApiError(404, "NotFound", f'pod "{names["pod"]}" does not exist')
        return pod

    def _container(self, request: web.Request) -> tuple[Pod, Container]:
        pod = self._pod(request)
        name = request.match_info["container"]
        container = find_container(pod, name)
        if container is None:
            text = f'container "{name}" not found in pod "{pod.metadata.name}"'
            raise ApiError(404, "NotFound", text)
        return pod, container

    def _running(self, pod: Pod, container: Container) -> str:
        """The runtime's id of the container; ApiError 400 says why it does not run."""
        running = self._registry.view(pod.metadata.uid or "").running(container.name)
        if running is not None:
            return running.container.id
        why = _why_not_running(pod, container.name)
        name = pod.metadata.name
        raise bad_request(f'container "{container.name}" in pod "{name}" is not running: {why}')

    async def _close(self, _app: web.Application) -> None:
        await self._streams.close()
        await self._spares.close()


def _add(
    app: web.Application,
    methods: Sequence[str],
    path: str,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> None:
    for method in methods:
        app.router.add_route(method, path, handler)


def _streams(request: web.Request, *, tty: bool) -> StreamOptions:
    query = request.query
    stdin, stdout, stderr = (query.get(name) == "1" for name in ("input", "output", "error"))
    if not (stdin or stdout or stderr):
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    return StreamOptions(stdin, stdout, stderr and not tty, tty)


def _wanted(streams: StreamOptions) -> Wanted:
    return Wanted(streams.stdin, streams.stdout, streams.stderr, streams.tty)


def _command(words: Sequence[str]) -> tuple[str, ...]:
    if not words or not words[0]:
        raise bad_request("a command is required")
    if sum(len(word.encode(errors="surrogateescape")) for word in words) > MAX_COMMAND_BYTES:
        raise bad_request(f"the command has over {MAX_COMMAND_BYTES} bytes")
    return tuple(words)


def parse_ports(values: Sequence[str]) -> tuple[int, ...]:
    """The ports of a query, some of them listed with commas; ApiError 400."""
    texts = [text for value in values for text in value.split(",")]
    if len(texts) > MAX_PORTS:
        raise bad_request(f"over {MAX_PORTS} ports are asked for")
    for text in texts:
        if not (text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65536):
            raise bad_request(f"port {text[:20]!r} is not a number from 1 to 65535")
    return tuple(map(int, texts))


def _why_not_running(pod: Pod, container: str) -> str:
    states = [s.state for s in container_statuses(pod.status) if s.name == container]
    state = (states[0] if states else None) or ContainerState()
    if state.terminated is not None:
        return f"it has ended with exit code {state.terminated.exitCode}"
    reason = state.waiting.reason if state.waiting else ""
    return f"it is waiting to start: {reason or 'ContainerCreating'}"


def _refused(error: RuntimeCallError) -> ApiError:
    code, reason = next((c, r) for kind, c, r in _REASONS if isinstance(error, kind))
    return ApiError(code, reason, f"the container runtime refused: {error}")


def _refused_by_streaming_server(error: Refused) -> ApiError:
    text = f"the runtime's streaming server answered {error.status}: {error}"
    if error.status in (400, 403):  # what the client asked for is not served
        return bad_request(text)
    return service_unavailable(text)
