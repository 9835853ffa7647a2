"""nodeagent.md §6.2, row by row, asked of all three programs over TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from orch.component import clock
from orch.component.daemon import SetupError
from orch.component.health import HealthChecks, SliMetrics
from orch.component.httpd import HttpServer, server_context
from orch.component.zpages import ZPages
from orch.lifecycle import options, serving
from orch.lifecycle.metrics import LifecycleMetrics
from tests.conftest import Pki
from tests.fakes.agent import ADMIN, Agent
from tests.fakes.agent import agent as agent
from tests.fakes.agent import sampler as sampler
from tests.fakes.agent import unserved as unserved
from tests.orch.server.harness import Api, make_pki

pytestmark = pytest.mark.may_block

PROGRAMS = ("nodeagent", "orch-apiserver", "orch-controller-manager")
V1 = "v=v1alpha1;g=config.orch.io;as="


class Manager:
    """The pages of a controller manager."""

    def __init__(self) -> None:
        parsed = options.parse(["--kubeconfig=x", "--feature-gates=AllAlpha=true"])
        self.features, self.settings = parsed.features, parsed.settings
        self.zpages = ZPages(options.PROGRAM, parsed.shown)
        self.slis, self.metrics = SliMetrics(), LifecycleMetrics(parsed.metric_policy)
        self.checks = HealthChecks(self.slis)
        self.checks.add("ping", lambda: None)


@asynccontextmanager
async def _agent(served: Agent) -> AsyncIterator[Any]:
    async with served.session(ADMIN) as ask:
        yield lambda path, accept: ask("GET", path, headers=_accept(accept))


@asynccontextmanager
async def _api(folder: Path) -> AsyncIterator[Any]:
    pki = make_pki(folder / "api-pki", clock.utc_now())
    api = await Api.start(pki, folder / "data", "--feature-gates=AllAlpha=true")
    try:
        yield lambda path, accept: api.call("GET", path, accept=accept or "text/plain")
    finally:
        await api.stop()


@asynccontextmanager
async def _manager(pki: Pki) -> AsyncIterator[Any]:
    pair = pki.server()
    context = server_context(pair.cert_file, pair.key_file, client_ca_file=None)
    app = serving.application(Manager(), guarded=False)
    listener = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="manager")
    port = await listener.start()
    trust = ssl.create_default_context(cafile=pki.ca_file)
    try:
        async with aiohttp.ClientSession() as session:
            yield lambda path, accept: _asked(session, port, path, accept, trust)
    finally:
        await listener.stop(1.0)


async def _asked(
    session: aiohttp.ClientSession, port: int, path: str, accept: str, trust: ssl.SSLContext
) -> Any:
    url = f"https://localhost:{port}{path}"
    async with session.get(url, headers=_accept(accept), ssl=trust) as response:
        return _Answer(response.status, response.headers, await response.read())


class _Answer:
    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self) -> str:
        return self.body.decode()


def _accept(accept: str) -> dict[str, str]:
    return {"Accept": accept} if accept else {}


@pytest_asyncio.fixture(params=PROGRAMS)
async def program(
    request: pytest.FixtureRequest,
    agent: Agent,
    pki: Pki,
    tmp_path: Path,
) -> AsyncIterator[tuple[str, Any]]:
    """A name and a function (path, accept) → answer."""
    opened = {
        "nodeagent": lambda: _agent(agent),
        "orch-apiserver": lambda: _api(tmp_path),
        "orch-controller-manager": lambda: _manager(pki),
    }[request.param]
    async with opened() as ask:
        yield request.param, ask


def kinds(page: str) -> str:
    return page.removeprefix("/").capitalize()


# Accept → status, whether it is the record
ROWS = [
    ("text/plain", 200, False),
    ("*/*", 200, False),
    (f"application/json;{V1}KIND", 200, True),
    (f"application/json;{V1}KIND;pretty=1", 200, True),
    ("application/json", 406, False),
    ("application/json;v=v1alpha1;g=config.orch.io", 406, False),
    ("application/json;v=v2;g=config.orch.io;as=KIND", 406, False),
    ("application/json;v=v1alpha1;g=other;as=KIND", 406, False),
    ("application/xml", 406, False),
    ("application/json;v=foo;g=config.orch.io;as=KIND,*/*", 200, False),
]


async def test_each_row_of_the_negotiation(program: tuple[str, Any]) -> None:
    name, ask = program
    for page in ("/statusz", "/flagz"):
        for accept, status, is_record in ROWS:
            answer = await ask(page, accept.replace("KIND", kinds(page)))
            assert answer.status == status, (page, accept)
            if status == 406:
                assert '"reason":"NotAcceptable"' in answer.text.replace(" ", "")
            elif is_record:
                assert f'"kind":"{kinds(page)}"' in answer.text.replace(" ", "")
                assert f'"name":"{name}"' in answer.text.replace(" ", "")
            else:
                assert answer.text.startswith(f"\n{name} {page[1:]}\nWarning: ")


async def test_metrics_and_slis_are_served(program: tuple[str, Any]) -> None:
    name, ask = program
    await ask("/healthz", "")
    slis = await ask("/metrics/slis", "")
    assert 'orch_healthcheck{name="ping",type="healthz"} 1' in slis.text
    assert 'orch_healthchecks_total{name="ping",status="success",type="healthz"} 1' in slis.text
    if name != "nodeagent":  # whose page here is not the program's own
        assert "registered_metrics_total" in (await ask("/metrics", "")).text


def test_a_gate_that_does_not_exist_is_named_by_the_controller_manager() -> None:
    with pytest.raises(SetupError, match="did you mean ComponentStatusz"):
        options.parse(["--kubeconfig=x", "--feature-gates=ComponentStatus=true"])
