"""The agent's HTTP surface over TLS: who gets in, and what each page is.

Every route of the application has a line in ROUTES; a route without one fails the first test.
What the pages say in detail is in test_server_pages. Rules: nodeagent.md §6.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import aiohttp
import pytest
from aiohttp import web

from nodeagent import server
from orch.component.flags.features import Features
from orch.component.http.httpd import HttpServer
from tests.fakes.agent import ADMIN, API_SERVER, MONITORING, NOBODY, OTHER_NODE, STRANGER, Agent

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
CONFIG_AS_JSON = '{"nodeagentconfig":'


@dataclass(frozen=True)
class Route:
    """A request that the route answers with 200, and what the answer looks like."""

    path: str
    content_type: str
    contains: str
    monitoring: bool = False  # whether the monitoring certificate may ask for it


ROUTES = {
    ("GET", "/stats/summary"): Route("/stats/summary", JSON, '"nodeName":"n1"', True),
    ("POST", "/stats/summary"): Route("/stats/summary", JSON, '"nodeName":"n1"'),
    ("GET", "/pressure"): Route("/pressure", JSON, '"kind":"NodePressure"', True),
    ("GET", "/metrics"): Route("/metrics", METRICS, "a_counter_total 1.0\n", True),
    ("GET", "/metrics/resource"): Route(
        "/metrics/resource", METRICS, "node_cpu_usage_seconds_total", True
    ),
    ("GET", "/metrics/containerstats"): Route(
        "/metrics/containerstats", METRICS, "container_cpu_usage_seconds_total", True
    ),
    ("GET", "/metrics/cadvisor"): Route(
        "/metrics/cadvisor", METRICS, "container_cpu_usage_seconds_total", True
    ),
    ("GET", "/metrics/probes"): Route("/metrics/probes", METRICS, "", True),
    ("GET", "/metrics/slis"): Route("/metrics/slis", METRICS, "process_start_time_seconds", True),
    ("DELETE", "/metrics/slis"): Route("/metrics/slis", TEXT, "metrics reset\n"),
    ("GET", "/pods"): Route("/pods", JSON, '"kind":"PodList"'),
    ("GET", "/runningpods/"): Route("/runningpods/", JSON, '"kind":"PodList"'),
    ("GET", "/configz"): Route("/configz", JSON, CONFIG_AS_JSON),
    ("GET", "/flagz"): Route("/flagz", TEXT, "nodeagent flagz"),
    ("GET", "/statusz"): Route("/statusz", TEXT, "nodeagent statusz"),
    ("GET", "/containerLogs/{namespace}/{pod}/{container}"): Route(
        "/containerLogs/default/web/app", TEXT, "hello\n"
    ),
    ("GET", "/checkpoint"): Route("/checkpoint", JSON, '"kind":"CheckpointList","items":['),
    ("POST", "/checkpoint/{namespace}/{pod}/{container}"): Route(
        "/checkpoint/shop/web/app", JSON, '{"items":["/'
    ),
    ("GET", "/overview"): Route("/overview", "text/html; charset=utf-8", "<h1>n1</h1>"),
    ("GET", "/healthz"): Route("/healthz", TEXT, "ok", True),
    ("GET", "/healthz/{check}"): Route("/healthz/ping", TEXT, "ok", True),
    ("GET", "/livez"): Route("/livez", TEXT, "ok"),
    ("GET", "/livez/{check}"): Route("/livez/ping", TEXT, "ok"),
    ("GET", "/readyz"): Route("/readyz", TEXT, "ok"),
    ("GET", "/readyz/{check}"): Route("/readyz/ping", TEXT, "ok"),
}
_PLACES = ("{namespace}/{pod}", "{namespace}/{pod}/{uid}")
STREAMS = {  # asked in test_container_streams.py
    *((m, f"/{name}/{place}/{{container}}") for m in ("GET", "POST") for name in ("exec", "attach")
      for place in _PLACES),
    *((method, f"/portForward/{place}") for method in ("GET", "POST") for place in _PLACES),
    *(("POST", f"/run/{place}/{{container}}") for place in _PLACES),
}  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def routes_of(app: web.Application) -> set[tuple[str, str]]:
    """Method and path of every route; HEAD comes with GET."""
    return {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }


async def test_every_route_has_a_case_here(unserved: Agent) -> None:
    assert routes_of(unserved.app) == set(ROUTES) | STREAMS


async def test_debugging_pages_are_served_only_where_they_are_switched_on(unserved: Agent) -> None:
    plain = server.secure_app(replace(unserved.services, features=Features({})))
    assert set(ROUTES) - routes_of(plain) == {("GET", "/flagz"), ("GET", "/statusz")}


async def statuses(agent: Agent, subject: tuple[str, str] | None) -> dict[tuple[str, str], int]:
    """The answer to every method on the path of every route."""
    paths = sorted({route.path for route in ROUTES.values()})
    async with agent.session(subject) as ask:
        return {(m, path): (await ask(m, path)).status for path in paths for m in METHODS}


async def test_without_a_certificate_nothing_is_served(agent: Agent) -> None:
    answers = await statuses(agent, NOBODY)
    assert {key: status for key, status in answers.items() if status != 401} == {}
    async with agent.session(NOBODY) as ask:
        assert (await ask("GET", "/no/such/page")).status == 401
        assert (await ask("GET", "/pods")).text == "Unauthorized"
    assert agent.runtime.called("checkpoint_container") == []


@pytest.mark.parametrize("subject", [STRANGER, OTHER_NODE])
async def test_a_certificate_without_rights_gets_nothing(
    agent: Agent, subject: tuple[str, str]
) -> None:
    answers = await statuses(agent, subject)
    assert {key: status for key, status in answers.items() if status != 403} == {}
    async with agent.session(subject) as ask:
        assert (await ask("GET", "/no/such/page")).status == 403
        assert (await ask("GET", "/pods")).text == (
            f"Forbidden (user={subject[0]}, verb=get, resource=nodes, "
            "subresource(s)=[pods proxy])\n"
        )
    assert agent.runtime.called("checkpoint_container") == []


async def test_monitoring_may_only_read_statistics_metrics_and_health(agent: Agent) -> None:
    readable = {route.path for route in ROUTES.values() if route.monitoring}
    assert {path.split("/")[1] for path in readable} == {
        "stats", "pressure", "metrics", "healthz",
    }  # fmt: skip
    expected = {
        (method, route.path): 200 if route.path in readable and method in ("GET", "HEAD") else 403
        for route in ROUTES.values()
        for method in METHODS
    }
    assert await statuses(agent, MONITORING) == expected


@pytest.mark.parametrize("subject", [ADMIN, API_SERVER])
async def test_administrators_and_the_api_server_get_every_page(
    agent: Agent, subject: tuple[str, str]
) -> None:
    async with agent.session(subject) as ask:
        for (method, _), route in ROUTES.items():
            answer = await ask(method, route.path)
            assert answer.status == 200, (method, route.path, answer.text)
            assert answer.headers["Content-Type"] == route.content_type, route.path
            assert route.contains in answer.text, route.path
            assert "Server" not in answer.headers


async def test_an_unserved_path_or_method_is_shown_to_authorized_callers_only(
    agent: Agent,
) -> None:
    async with agent.session(ADMIN) as ask:
        unknown = await ask("GET", "/no/such/page")
        assert (unknown.status, unknown.text) == (404, "404 page not found\n")
        wrong = await ask("PUT", "/metrics")
        assert wrong.status == 405
        assert set(wrong.headers["Allow"].split(",")) == {"GET", "HEAD"}


@pytest.mark.parametrize(
    "path", ["/healthz/..%2f..%2fpods", "/metrics%2f..%2fpods", "/stats/../pods"]
)
async def test_a_dressed_up_path_opens_nothing_more_to_monitoring(agent: Agent, path: str) -> None:
    async with agent.session(MONITORING) as ask:
        answer = await ask("GET", path)
    assert answer.status in (403, 404)
    assert "PodList" not in answer.text


# ---- the plain port


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("HEAD", "/healthz", 200),
        ("POST", "/healthz", 405),
        ("GET", "/readyz", 200),
        *(("GET", path, 404) for path in ("/", "/healthz/ping", "/livez", "/metrics", "/pods")),
    ],
)
async def test_the_plain_port_serves_health_and_nothing_else(
    unserved: Agent, method: str, path: str, status: int
) -> None:
    app = server.healthz_app(unserved.services.health)
    assert routes_of(app) == {("GET", "/healthz"), ("GET", "/readyz")}
    listener = HttpServer(app, host="127.0.0.1", port=0, name="healthz")
    port = await listener.start()
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"http://127.0.0.1:{port}{path}") as response,
        ):
            assert response.status == status
            assert await response.text() == "ok" or method != "GET" or status != 200
    finally:
        await listener.stop(1.0)
