"""The application: one filter before everything, resources routed by their attributes, everything
else by path.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from orch.component.http.httpd import SHORTCUT, Shortcut
from orch.server.audit import trail
from orch.server.handlers.resources import ResourceHandlers
from orch.server.request import bodies
from orch.server.request_filter import RequestFilter
from orch.wire.records.kinds import RESOURCES


def build(
    request_filter: RequestFilter, handlers: ResourceHandlers, others: Sequence[web.RouteDef]
) -> web.Application:
    """`others` are the routes beside resources; they take precedence."""
    app = web.Application(
        middlewares=[request_filter.middleware()], client_max_size=bodies.MAX_BYTES
    )
    if request_filter.auditor is not None:
        app.on_response_prepare.append(trail.on_prepare)

    app.router.add_routes(others)
    # Groups first: the router finds the longest known prefix of a path soonest.
    groups = dict.fromkeys(resource.path().rpartition("/")[0] for resource in RESOURCES)
    routes = [
        app.router.add_route("*", f"{root}/{{path:.+}}", handlers.handle)
        for root in (*groups, "/api", "/apis")
    ]
    prefixes = tuple(f"{root}/" for root in groups if not _has_others(f"{root}/", others))
    app[SHORTCUT] = Shortcut(prefixes, routes[0])
    return app


def _has_others(prefix: str, others: Sequence[web.RouteDef]) -> bool:
    """Whether another route lies below the prefix, not just at it."""
    return any(other.path.startswith(prefix) and other.path != prefix for other in others)
