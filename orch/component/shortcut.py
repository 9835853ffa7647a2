"""A way past aiohttp's router, for requests that all end at one route anyway.

Looking for that route, and telling each request of its application, costs as much as a handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from aiohttp import web

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Shortcut:
    """Below each of `prefixes`, which end in a slash, `route` is the only one."""

    prefixes: tuple[str, ...]
    route: web.AbstractRoute

    def beside(self, app: web.Application, routed: Answering) -> Answering:
        """Answers like `routed`, the application's own way, which is left what needs a look."""
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
            request._match_info = match  # by which the application's signals are found
            return handler(request)

        return answer


SHORTCUT = web.AppKey("shortcut", Shortcut)
