"""Requests to the agent, counted: how many, how long, how many at the moment.

Labels come from a closed list, never from what a caller wrote (nodeagent.md §4.1). Refused requests
count too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from orch.component.metrics import Registry

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_METHODS = frozenset(
    ("OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT")
)  # as the reference has them: PATCH is among the others
_PATHS = frozenset(
    (
        "checkpoint", "checkpoints", "configz", "containerLogs", "flagz", "healthz", "livez",
        "pods", "readyz", "runningpods", "stats", "statusz",
    )
)  # fmt: skip
_METRICS = frozenset(("resource", "containerstats", "probes", "slis"))
_LABELS = ("method", "path", "server_type", "long_running")
OTHER = "other"


class HttpMetrics:
    """The three families; `middleware` counts for one kind of port."""

    def __init__(self, registry: Registry) -> None:
        self._requests = registry.counter(
            "nodeagent_http_requests_total",
            "Number of the http requests received since the server started",
            _LABELS,
        )
        self._durations = registry.histogram(
            "nodeagent_http_requests_duration_seconds",
            "Duration in seconds to serve http requests",
            _LABELS,
        )
        self._inflight = registry.gauge(
            "nodeagent_http_inflight_requests", "Number of the inflight http requests", _LABELS
        )

    def middleware(self, server_type: str) -> Any:
        """`readwrite` for the secure port, `readonly` for the one without authentication."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            method = request.method if request.method in _METHODS else OTHER
            labels = (method, bucket(request.path), server_type, "false")
            loop = asyncio.get_running_loop()
            begun_s = loop.time()
            self._requests.labels(*labels).inc()
            inflight = self._inflight.labels(*labels)
            inflight.inc()
            try:
                return await handler(request)
            finally:
                inflight.dec()
                self._durations.labels(*labels).observe(loop.time() - begun_s)

        return count


def bucket(path: str) -> str:
    """The first part of a path that is served, `metrics/x` for the pages below it, else `other`."""
    first, _, rest = path.strip("/").partition("/")
    if first == "metrics":
        second = rest.partition("/")[0]
        return f"metrics/{second}" if second in _METRICS else (OTHER if rest else "metrics")
    return first if first in _PATHS else OTHER
