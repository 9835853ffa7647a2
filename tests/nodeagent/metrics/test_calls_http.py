"""Requests counted by what they are, not by what callers write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from nodeagent.metrics.calls import HttpMetrics, path_label
from orch.component.diagnostics.metrics import Registry
from orch.wire.errors import unauthorized

BUCKETS = [  # nodeagent.md §4.1
    ("/healthz/ping", "healthz"),
    ("/stats/summary", "stats"),
    ("/pressure", "pressure"),
    ("/metrics", "metrics"),
    ("/metrics/resource", "metrics/resource"),
    ("/metrics/junk", "other"),
    ("/junk", "other"),
    ("/healthzjunk", "other"),
    ("/", "other"),
    ("/checkpoint/a/b/c", "checkpoint"),
    ("/metrics/probes", "metrics/probes"),
    ("/runningpods/", "runningpods"),
]


@pytest.mark.parametrize(("path", "expected"), BUCKETS)
def test_paths_are_labelled_from_a_closed_list(path: str, expected: str) -> None:
    assert path_label(path) == expected


@pytest.fixture
async def client() -> AsyncIterator[tuple[Any, Registry]]:
    registry = Registry()

    async def handle(request: web.Request) -> web.Response:
        if request.path == "/pods":
            raise unauthorized()
        body = registry.render("")[0]
        return web.Response(body=body)

    app = web.Application(middlewares=[HttpMetrics(registry).middleware("readwrite")])
    app.router.add_route("*", "/{tail:.*}", handle)
    async with TestClient(TestServer(app)) as made:
        yield made, registry


def line(family: str, value: str, method: str = "GET", path: str = "stats") -> str:
    labels = f'long_running="false",method="{method}",path="{path}",server_type="readwrite"'
    return f"{family}{{{labels}}} {value}\n"


async def test_a_request_counts_while_it_runs_and_when_it_ends(
    client: tuple[Any, Registry],
) -> None:
    ask, registry = client
    during = await (await ask.get("/stats/summary")).text()
    assert line("nodeagent_http_inflight_requests", "1.0") in during
    after = registry.render("")[0].decode()
    assert line("nodeagent_http_inflight_requests", "0.0") in after
    assert line("nodeagent_http_requests_total", "1.0") in after
    assert line("nodeagent_http_requests_duration_seconds_count", "1.0") in after
    assert "# HELP nodeagent_http_requests_total [ALPHA] " in after


async def test_a_refused_request_and_an_odd_method_count_too(
    client: tuple[Any, Registry],
) -> None:
    ask, registry = client
    await ask.get("/pods")
    await ask.patch("/no/such")
    await ask.request("PROPFIND", "/no/such")
    page = registry.render("")[0].decode()
    assert line("nodeagent_http_requests_total", "1.0", path="pods") in page
    assert line("nodeagent_http_requests_total", "2.0", method="other", path="other") in page
