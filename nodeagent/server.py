"""The agent's HTTP surface: routes, and handlers that parse, call and respond.

On the secure port `auth` decides before a handler runs; the plain health port serves only /healthz
and /readyz. Error bodies are plain text, as the reference agent's are. Must not know how an answer
is computed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from aiohttp import web
from multidict import MultiDict

from nodeagent.auth.access import Access
from nodeagent.checkpoint import CheckpointService
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.container_logs import ContainerLogs
from nodeagent.container_streams import ContainerStreams
from nodeagent.metrics.calls import HttpMetrics
from nodeagent.metrics.pages import Body, StatsPages, body_of
from nodeagent.overview.overview import Overview
from nodeagent.pods.registry import PodRegistry
from nodeagent.pressure.watch import PressureWatch
from orch.component.diagnostics.health import HealthChecks, SliMetrics
from orch.component.diagnostics.metrics import Registry
from orch.component.diagnostics.zpages import ZPages, configz
from orch.component.flags.features import Features
from orch.component.http.httpd import BODY_TIMEOUT_S, render_text, text_errors
from orch.component.http.sliced_response import Sending, respond
from orch.component.process.threads import run_in_thread
from orch.wire.errors import ApiError
from orch.wire.records.pods import Pod

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

MAX_BODY_BYTES = 64 * 1024
_DEBUGGING = ("run", "exec", "attach", "portForward", "containerLogs", "runningpods")
_FORM_TYPE = "application/x-www-form-urlencoded"  # of no other, as in the reference agent
_FORM_TYPE_MAX = 256  # aiohttp's parser is quadratic: 8 kB took a second


@dataclass(frozen=True, slots=True)
class Services:
    """What the handlers call."""

    access: Access
    config: Callable[[], NodeAgentConfiguration]
    features: Features
    zpages: ZPages
    pages: StatsPages
    pressure: PressureWatch
    registry: PodRegistry
    checkpoints: CheckpointService | None  # None: the feature gate is off
    overview: Overview | None  # None: the page is off
    streams: ContainerStreams | None  # None: there is no runtime
    health: HealthChecks
    slis: SliMetrics
    metrics: Registry
    probes: Registry
    http: HttpMetrics


def secure_app(services: Services) -> web.Application:
    """The application behind TLS; unauthorized requests never reach a handler."""
    guard = _guard(services.access)
    counted = services.http.middleware("readwrite")
    app = web.Application(middlewares=[counted, text_errors, guard], client_max_size=MAX_BODY_BYTES)
    handlers = _Handlers(services)
    _add_read_only_routes(app, handlers, services)
    app.router.add_post("/stats/summary", handlers.summary)
    app.router.add_delete("/metrics/slis", handlers.reset_slis)
    if services.config().enableDebuggingHandlers:
        _add_debugging_routes(app, handlers, services)
    else:
        for name in _DEBUGGING:
            app.router.add_route("*", f"/{name}", _disabled)
            app.router.add_route("*", f"/{name}/{{rest:.*}}", _disabled)
    add_health_routes(app, services.health, ("healthz", "livez", "readyz"))
    return app


def _add_debugging_routes(app: web.Application, handlers: _Handlers, services: Services) -> None:
    """What shows or reaches into pods and processes; `enableDebuggingHandlers` turns it off."""
    app.router.add_get("/runningpods/", handlers.running_pods)
    app.router.add_routes([configz("nodeagentconfig", handlers.config)])
    app.router.add_routes(services.zpages.routes(services.features))
    ContainerLogs(services.registry).add_to(app)
    if services.streams:
        services.streams.add_to(app)
    if services.checkpoints:
        app.router.add_get("/checkpoint", handlers.checkpoints)
        app.router.add_post("/checkpoint/{namespace}/{pod}/{container}", handlers.checkpoint)
    if services.overview:
        app.router.add_get("/overview", services.overview.show)


async def _disabled(request: web.Request) -> web.Response:
    return render_text("Debug endpoints are disabled.\n", status=405)


def read_only_app(services: Services) -> web.Application:
    """The plain port without authentication, off by default: read-only and no configuration."""
    counted = services.http.middleware("readonly")
    app = web.Application(middlewares=[counted, text_errors], client_max_size=MAX_BODY_BYTES)
    _add_read_only_routes(app, _Handlers(services), services)
    add_health_routes(app, services.health)
    return app


def healthz_app(health: HealthChecks) -> web.Application:
    """The plain port for supervisors: no authentication, so nobody has to be asked; no reasons."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    for endpoint in ("healthz", "readyz"):
        app.router.add_get(f"/{endpoint}", health.handler(endpoint))
    return app


def add_health_routes(
    app: web.Application, health: HealthChecks, endpoints: Sequence[str] = ("healthz",)
) -> None:
    for endpoint in endpoints:
        handler = health.handler(endpoint)
        app.router.add_get(f"/{endpoint}", handler)
        app.router.add_get(f"/{endpoint}/{{check}}", handler)


def _add_read_only_routes(app: web.Application, handlers: _Handlers, services: Services) -> None:
    app.router.add_get("/stats/summary", handlers.summary)
    app.router.add_get("/pressure", handlers.pressure)
    app.router.add_get("/metrics", handlers.metrics)
    app.router.add_get("/metrics/resource", handlers.resource_metrics)
    for name in ("containerstats", "cadvisor"):  # the second is the reference agent's name
        app.router.add_get(f"/metrics/{name}", handlers.container_metrics)
    app.router.add_get("/metrics/probes", handlers.probe_metrics)
    app.router.add_get("/metrics/slis", services.slis.show)
    app.router.add_get("/pods", handlers.pods)


def _guard(access: Access) -> Any:
    """The middleware that authorizes every request, even for unknown paths."""

    @web.middleware
    async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
        await access.check(request)
        return await handler(request)

    return authorize


class _Handlers:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def summary(self, request: web.Request) -> web.Response:
        only = request.query.getall("only_cpu_and_memory", [])
        if request.method == "POST":  # body and query form the parameters
            only = [*(await _form(request)).getall("only_cpu_and_memory", []), *only]
        body = await self._services.pages.summary(
            only_cpu_and_memory=only == ["true"], accept_encoding=_encoding(request)
        )
        return self._page(body)

    async def pressure(self, request: web.Request) -> web.Response:
        headers = {"Content-Type": "application/json"}
        return respond(200, await self._services.pressure.report(), headers)

    async def metrics(self, request: web.Request) -> web.Response:
        return _page(_body(self._services.metrics, request))

    async def probe_metrics(self, request: web.Request) -> web.Response:
        """In a thread: each probe of each container is thirty lines."""
        work = partial(_body, self._services.probes, request)
        return _page(await run_in_thread(work, name="page of probes"))

    async def resource_metrics(self, request: web.Request) -> web.Response:
        accept, encoding = request.headers.get("Accept", ""), _encoding(request)
        pages = self._services.pages
        return self._page(await pages.resource(accept=accept, accept_encoding=encoding))

    async def container_metrics(self, request: web.Request) -> web.Response:
        accept, encoding = request.headers.get("Accept", ""), _encoding(request)
        pages = self._services.pages
        return self._page(await pages.containers(accept=accept, accept_encoding=encoding))

    def _page(self, body: Body) -> web.Response:
        return _page(body, self._services.pages.sending)

    async def reset_slis(self, request: web.Request) -> web.Response:
        self._services.slis.reset()
        return web.Response(text="metrics reset\n")

    async def pods(self, request: web.Request) -> web.Response:
        return await _pod_list(self._services.registry.pods())

    async def running_pods(self, request: web.Request) -> web.Response:
        return await _pod_list(self._services.registry.running_pods())

    def config(self) -> dict[str, Any]:
        return self._services.config().model_dump(mode="json")

    async def checkpoints(self, request: web.Request) -> web.Response:
        service = self._services.checkpoints
        assert service is not None  # noqa: S101 — the route exists only with the service
        return _json({"kind": "CheckpointList", "items": await service.list_archives()})

    async def checkpoint(self, request: web.Request) -> web.Response:
        service = self._services.checkpoints
        assert service is not None  # noqa: S101 — the route exists only with the service
        path = await service.checkpoint(
            request.match_info["namespace"],
            request.match_info["pod"],
            request.match_info["container"],
            timeout=request.query.getall("timeout", [""])[-1],
        )
        return _json({"items": [path]})


async def _form(request: web.Request) -> Any:
    """The fields of a form; bodies of other types are ignored, as in the reference agent.

    ApiError 500 when the form cannot be parsed.
    """
    sent = request.headers.get("Content-Type", "")
    if len(sent) > _FORM_TYPE_MAX:
        raise _bad_form(f"a content type of {len(sent)} characters")
    if request.content_type != _FORM_TYPE:
        named = sent.partition(";")[0]
        if named.count("/") > 1:  # not a media type
            raise _bad_form(f"content type {named!r}")
        return MultiDict()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.post()
    except TimeoutError:
        message = f"the request body did not arrive within {BODY_TIMEOUT_S:g} s"
        raise ApiError(408, "Timeout", message) from None
    except (ValueError, LookupError) as error:  # unknown charset, or bytes that do not fit it
        raise _bad_form(str(error)) from None


def _bad_form(why: str) -> ApiError:
    return ApiError(500, "InternalError", f"parse form failed: {why}")


async def _pod_list(pods: Iterable[Pod]) -> web.Response:
    """Others of the loop have their turn after each pod: all may be hundreds of megabytes."""
    items = []
    for pod in [*pods]:
        items.append(orjson.dumps(pod.to_wire()))
        await asyncio.sleep(0)
    data = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[%b]}' % b",".join(items)
    return respond(200, data, {"Content-Type": "application/json"})


def _json(value: Any) -> web.Response:
    return respond(200, orjson.dumps(value), {"Content-Type": "application/json"})


def _encoding(request: web.Request) -> str:
    return request.headers.get("Accept-Encoding", "")


def _page(body: Body, sending: Sending | None = None) -> web.Response:
    headers = {"Content-Type": body.content_type, "Vary": "Accept, Accept-Encoding"}
    if body.encoding:
        headers["Content-Encoding"] = body.encoding
    return respond(200, body.data, headers, sending=sending)


def _body(registry: Registry, request: web.Request) -> Body:
    page, content_type = registry.render(request.headers.get("Accept", ""))
    return body_of(page, content_type, _encoding(request))
