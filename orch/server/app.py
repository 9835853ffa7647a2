"""The application: one gate before everything, resources by their attributes, the rest by path."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from orch.component.shortcut import SHORTCUT, Shortcut
from orch.server import audit
from orch.server.gate import IDENTITY, INFO, Gate
from orch.server.handlers import ResourceHandlers
from orch.wire.kinds import RESOURCES

MAX_BODY_BYTES = 3 * 1024 * 1024


def build(
    gate: Gate, handlers: ResourceHandlers, others: Sequence[web.RouteDef]
) -> web.Application:
    """`others` are the routes that are not a resource's; they win over the resources'."""
    app = web.Application(middlewares=[gate.middleware()], client_max_size=MAX_BODY_BYTES)
    if gate.auditor.policy is not None:
        app.on_response_prepare.append(audit.on_prepare)

    async def handle(request: web.Request) -> web.StreamResponse:
        info = request[INFO]
        if not info.is_resource:
            raise web.HTTPNotFound
        return await handlers.handle(request, info, request[IDENTITY])

    app.router.add_routes(others)
    # Of each group first: the router finds the longest known beginning of a path soonest.
    groups = dict.fromkeys(resource.path().rpartition("/")[0] for resource in RESOURCES)
    routes = [
        app.router.add_route("*", f"{root}/{{path:.+}}", handle)
        for root in (*groups, "/api", "/apis")
    ]
    prefixes = tuple(f"{root}/" for root in groups if not _has_others(f"{root}/", others))
    app[SHORTCUT] = Shortcut(prefixes, routes[0])
    return app


def _has_others(prefix: str, others: Sequence[web.RouteDef]) -> bool:
    """Is there another route below the prefix? At it there may be: that is not below."""
    return any(other.path.startswith(prefix) and other.path != prefix for other in others)
