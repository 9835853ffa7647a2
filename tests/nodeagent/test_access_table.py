"""The access table: every route, method and credential over TLS; nothing runs before it is decided.

The routes are walked, so a new one without a line in WANTED fails. Rules: nodeagent.md §8.2.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from orch.component.http import httpd
from orch.wire.records.authentication import Identity
from tests.conftest import Pki
from tests.fakes.agent import Agent
from tests.fakes.reviews import FakeReviews

pytestmark = pytest.mark.slow

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
VERBS = {
    "GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch",
    "DELETE": "delete",
}  # fmt: skip
# Route → a path of it, and the subresources that open it, in order.
WANTED = {
    "/stats/summary": ("/stats/summary", ("stats",)),
    "/pressure": ("/pressure", ("stats",)),
    "/metrics": ("/metrics", ("metrics",)),
    "/metrics/resource": ("/metrics/resource", ("metrics",)),
    "/metrics/containerstats": ("/metrics/containerstats", ("metrics",)),
    "/metrics/cadvisor": ("/metrics/cadvisor", ("metrics",)),
    "/metrics/probes": ("/metrics/probes", ("metrics",)),
    "/metrics/slis": ("/metrics/slis", ("metrics",)),
    "/pods": ("/pods", ("pods", "proxy")),
    "/runningpods/": ("/runningpods/", ("pods", "proxy")),
    "/configz": ("/configz", ("configz", "proxy")),
    "/flagz": ("/flagz", ("proxy",)),
    "/statusz": ("/statusz", ("statusz", "proxy")),
    "/containerLogs/{namespace}/{pod}/{container}": ("/containerLogs/a/b/c", ("proxy",)),
    "/exec/{namespace}/{pod}/{container}": ("/exec/a/b/c", ("proxy",)),
    "/exec/{namespace}/{pod}/{uid}/{container}": ("/exec/a/b/u/c", ("proxy",)),
    "/attach/{namespace}/{pod}/{container}": ("/attach/a/b/c", ("proxy",)),
    "/attach/{namespace}/{pod}/{uid}/{container}": ("/attach/a/b/u/c", ("proxy",)),
    "/portForward/{namespace}/{pod}": ("/portForward/a/b", ("proxy",)),
    "/portForward/{namespace}/{pod}/{uid}": ("/portForward/a/b/u", ("proxy",)),
    "/run/{namespace}/{pod}/{container}": ("/run/a/b/c", ("proxy",)),
    "/run/{namespace}/{pod}/{uid}/{container}": ("/run/a/b/u/c", ("proxy",)),
    "/checkpoint": ("/checkpoint", ("checkpoint",)),
    "/checkpoint/{namespace}/{pod}/{container}": ("/checkpoint/a/b/c", ("checkpoint",)),
    "/overview": ("/overview", ("proxy",)),
    "/livez": ("/livez", ("proxy",)),
    "/livez/{check}": ("/livez/ping", ("proxy",)),
    "/readyz": ("/readyz", ("proxy",)),
    "/readyz/{check}": ("/readyz/ping", ("proxy",)),
    "/healthz": ("/healthz", ("healthz", "proxy")),
    "/healthz/{check}": ("/healthz/ping", ("healthz", "proxy")),
}
ACTS = ("/exec/", "/attach/", "/portForward/", "/run/")  # whatever the method, it is `create`
ALL_PARTS = {part for _, parts in WANTED.values() for part in parts}


def routes_of(agent: Agent) -> set[tuple[str, str]]:
    """Method and canonical path of every route."""
    return {
        (route.method, route.resource.canonical)
        for route in agent.app.router.routes()
        if route.resource is not None
    }


def requests(agent: Agent) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Every method on a path of every route; the path's subresources."""
    for canonical in sorted({canonical for _, canonical in routes_of(agent)}):
        path, parts = WANTED[canonical]
        yield from ((method, path, parts) for method in METHODS)


def verb_of(method: str, path: str) -> str:
    return "create" if path.startswith(ACTS) else VERBS[method]


async def test_every_route_has_a_line(unserved: Agent) -> None:
    assert {canonical for _, canonical in routes_of(unserved)} == set(WANTED)


@asynccontextmanager
async def asking(
    agent: Agent, pair: Any = None, token: str = "", version: ssl.TLSVersion | None = None
) -> Any:
    """A function (method, path) → status; 0 when the connection ends without an answer."""
    context = ssl.create_default_context(cafile=agent.pki.ca_file)
    if version:
        context.minimum_version = context.maximum_version = version
    if pair:
        context.load_cert_chain(pair.cert_file, pair.key_file)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def ask(method: str, path: str) -> int:
            url = f"https://localhost:{agent.port}{path}"
            try:
                async with session.request(method, url) as response:
                    await response.read()
                    return response.status
            except aiohttp.ClientConnectionError:
                return 0

        yield ask


async def walked(agent: Agent, ask: Any) -> set[int]:
    return {await ask(method, path) for method, path, _ in requests(agent)}


@pytest.mark.parametrize("token", ["", "bad", "bad bad"])
async def test_without_a_good_credential_every_request_is_401(
    delegated: Agent, reviews: FakeReviews, token: str
) -> None:
    reviews.rights = {("system:authenticated", verb, part) for verb in VERBS.values()
                      for part in ALL_PARTS}  # fmt: skip
    async with asking(delegated, token=token) as ask:
        assert await walked(delegated, ask) == {401}
        assert await ask("GET", "/no/such/page") == 401
    _nothing_ran(delegated)


@pytest.fixture(params=["wrong CA", "expired"])
def bad_certificate(request: pytest.FixtureRequest, tmp_path: Path, pki: Pki) -> Any:
    """An administrator's, by an authority nobody knows or past its time."""
    if request.param == "expired":
        return pki.ended_client("admin", "system:masters")
    folder = tmp_path / "foreign"
    folder.mkdir()
    return Pki(folder).client("admin", "system:masters")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_bad_certificate_is_refused_before_a_byte_of_any_route(
    delegated: Agent,
    reviews: FakeReviews,
    bad_certificate: Any,
    version: ssl.TLSVersion,
) -> None:
    """The handshake ends it (docs/agent-access.md), also when a good token comes with it."""
    reviews.tokens["good"] = Identity("alice")
    reviews.rights = {("alice", verb, part) for verb in VERBS.values() for part in ALL_PARTS}
    paths = [path for path, _ in WANTED.values()]
    async with asking(delegated, bad_certificate, "good", version) as ask:
        assert {await ask("GET", path) for path in paths} == {0}
    assert await _received(delegated, bad_certificate, version) == b""
    assert reviews.asked == []
    assert "nodeagent_http_requests_total{" not in _metrics_of(delegated)
    _nothing_ran(delegated)
    async with asking(delegated, token="good", version=version) as ask:
        assert await ask("GET", "/pods") == 200  # it was the certificate
    assert "nodeagent_http_requests_total{" in _metrics_of(delegated)


async def test_a_certificate_that_expires_during_its_connection_gets_401(
    delegated: Agent, reviews: FakeReviews, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviews.rights = {("alice", verb, part) for verb in VERBS.values() for part in ALL_PARTS}
    async with asking(delegated, pki.client("alice")) as ask:
        assert await ask("GET", "/pods") == 200
        monkeypatch.setattr(httpd.clock, "wall_ns", lambda: 4 * 10**19)  # in the year 3237
        assert await walked(delegated, ask) == {401}
    async with asking(delegated) as ask:
        assert await ask("GET", "/pods") == 401
    _nothing_ran(delegated)


async def _received(agent: Agent, pair: Any, version: ssl.TLSVersion) -> bytes:
    """What the agent sends to a request that is written at once, TLS taken off."""
    context = ssl.create_default_context(cafile=agent.pki.ca_file)
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(pair.cert_file, pair.key_file)
    got = b""
    try:
        reader, writer = await asyncio.open_connection("localhost", agent.port, ssl=context)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while piece := await reader.read(4096):
            got += piece
    except (ConnectionError, ssl.SSLError):
        return got
    writer.close()
    return got


def _metrics_of(agent: Agent) -> str:
    body, _ = agent.services.metrics.render("")
    return body.decode()


async def test_a_good_token_without_a_right_gets_403_everywhere(
    delegated: Agent, reviews: FakeReviews
) -> None:
    reviews.tokens["good"] = Identity("alice")
    async with asking(delegated, token="good") as ask:
        assert await walked(delegated, ask) == {403}
        assert await ask("GET", "/no/such/page") == 403
    _nothing_ran(delegated)


async def test_each_right_opens_its_own_routes_with_its_own_verb_and_nothing_else(
    delegated: Agent, reviews: FakeReviews
) -> None:
    """A right that is not reviewed cannot open a route; each one that is reviewed does alone."""
    reviews.tokens["good"] = Identity("alice")
    async with asking(delegated, token="good") as ask:
        for method, path, parts in requests(delegated):
            known = parts if method in VERBS else ()
            needed = [("alice", verb_of(method, path), part) for part in known]
            reviews.rights, reviews.asked = set(), []
            assert await ask(method, path) == 403, (method, path)
            assert reviews.asked == [("token", "good"), *needed], (method, path)
            for right in needed:
                reviews.rights = {right}
                assert await ask(method, path) not in (0, 401, 403, 500), (method, path, right)


async def test_a_served_route_answers_who_holds_the_right(
    delegated: Agent, reviews: FakeReviews
) -> None:
    reviews.tokens["good"] = Identity("alice")
    async with asking(delegated, token="good") as ask:
        for method, canonical in sorted(routes_of(delegated)):
            path, parts = WANTED[canonical]
            for part in parts:
                reviews.rights = {("alice", verb_of(method, path), part)}
                assert await ask(method, path) in (200, 404), (method, path, part)


async def test_without_an_api_server_no_new_caller_is_admitted(
    delegated: Agent, reviews: FakeReviews, pki: Pki
) -> None:
    reviews.gone = True
    async with asking(delegated, token="good") as ask:
        assert await walked(delegated, ask) == {401}
    async with asking(delegated, pki.client("alice", "devs")) as ask:
        statuses = {(method, await ask(method, path)) for method, path, _ in requests(delegated)}
    assert {status for method, status in statuses if method in VERBS} == {500}
    assert {status for method, status in statuses if method not in VERBS} == {403}
    _nothing_ran(delegated)


def _nothing_ran(agent: Agent) -> None:
    assert agent.runtime.called("checkpoint_container") == []
