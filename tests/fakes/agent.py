"""The agent's application with real parts around a fake runtime, served over TLS on loopback.

Fixtures: `unserved` is such an agent before it listens, `agent` the same with a port; who may do
what is decided by the built-in groups. `delegated` asks `reviews`. Requests are made under a
subject (CN, O) whose certificate the test's own authority signs.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio
from yarl import URL

from nodeagent import freezer, server
from nodeagent.auth.access import Access
from nodeagent.auth.authentication import Authenticator, Tokens
from nodeagent.auth.authorization import BuiltInGroups, Reviewed
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.container_streams import ContainerStreams
from nodeagent.metrics.calls import HttpMetrics
from nodeagent.metrics.pages import StatsPages
from nodeagent.overview.history import History
from nodeagent.overview.overview import Overview
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.spec.spec import PodSettings
from nodeagent.pressure.closer import CloserReader
from nodeagent.pressure.watch import PressureWatch
from nodeagent.server import Services
from nodeagent.stats.cgroup.readers import CgroupReaders
from nodeagent.stats.sampler import Sampler
from orch.component.diagnostics.health import HealthChecks, SliMetrics
from orch.component.diagnostics.metrics import Registry
from orch.component.diagnostics.zpages import ZPages
from orch.component.flags.features import Features
from orch.component.http import httpd
from orch.component.http.httpd import HttpServer
from tests.conftest import Credentials, Pki
from tests.fakes import hosts, pods
from tests.fakes.checkpoints import checkpointable_node
from tests.fakes.reviews import FakeReviews
from tests.fakes.runtime import FakeRuntime

NOBODY = None
STRANGER = ("mallory", "visitors")
OTHER_NODE = ("system:node:n2", "system:nodes")
MONITORING = ("prometheus", "system:monitoring")
ADMIN = ("admin", "system:masters")
API_SERVER = ("system:apiserver", "any")


@dataclass
class Answer:
    status: int
    body: bytes
    headers: Any

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return orjson.loads(self.body)


class Agent:
    """A served application, its parts, and requests under any certificate."""

    def __init__(self, services: Services, runtime: FakeRuntime, pki: Pki) -> None:
        self.services = services
        self.runtime = runtime
        self.app = server.secure_app(services)
        self.port = 0
        self.pki = pki
        self._contexts: dict[tuple[str, str] | None, ssl.SSLContext] = {}

    def context(self, subject: tuple[str, str] | None) -> ssl.SSLContext:
        if subject not in self._contexts:
            context = ssl.create_default_context(cafile=self.pki.ca_file)
            if subject:
                pair = self.pki.client(*subject)
                context.load_cert_chain(pair.cert_file, pair.key_file)
            self._contexts[subject] = context
        return self._contexts[subject]

    @asynccontextmanager
    async def session(self, subject: tuple[str, str] | None) -> AsyncIterator[Any]:
        """A function (method, path, …) → Answer that keeps its connection."""
        connector = aiohttp.TCPConnector(ssl=self.context(subject))
        async with aiohttp.ClientSession(connector=connector) as session:

            async def ask(method: str, path: str, **more: Any) -> Answer:
                url = URL(f"https://localhost:{self.port}{path}", encoded=True)
                async with session.request(method, url, **more) as response:
                    return Answer(response.status, await response.read(), response.headers)

            yield ask

    async def ask(self, method: str, path: str, **more: Any) -> Answer:
        """As an administrator."""
        async with self.session(ADMIN) as ask:
            answer: Answer = await ask(method, path, **more)
            return answer


def registry_of_a_logging_pod(directory: Path) -> PodRegistry:
    log = directory / "0.log"
    log.write_bytes(b"2026-01-31T12:00:00Z stdout F hello\n")
    registry = PodRegistry(PodSettings("n1", str(directory), str(directory)))
    registry.set_desired([pods.pod()])
    registry.set_view(pods.seen(pods.sandbox(), pods.logged(pods.instance(), log)))
    return registry


def pressure_watch(sampler: Sampler) -> PressureWatch:
    sources = hosts.sources(hosts.TREES / "v2")
    readers = CgroupReaders(sampler.reader.layout, fd_budget=0)
    reader = CloserReader(sources, readers, pods_cgroup="/orchpods")
    return PressureWatch(sampler, reader, node_name="n1", cpus=2)


@pytest_asyncio.fixture
async def sampler() -> AsyncIterator[Sampler]:
    sources = hosts.sources(hosts.TREES / "v2")
    sampler = Sampler(targets=lambda: [hosts.POD], sources=sources)
    yield sampler
    await sampler.close()


@pytest_asyncio.fixture
async def unserved(
    tmp_path: Path, sampler: Sampler, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Agent]:
    """An agent that is not served yet."""
    monkeypatch.setattr(freezer, "SETTLE_S", 0.001)
    slis = SliMetrics()
    health = HealthChecks(slis)
    health.add("ping", lambda: None)
    metrics = Registry()
    metrics.counter("a_counter_total", "Counts.").inc()
    node = await checkpointable_node(tmp_path)
    config = NodeAgentConfiguration(
        staticPodURLHeader={"Authorization": ["Bearer of-the-header"]}  # type: ignore[list-item]
    )
    registry = registry_of_a_logging_pod(tmp_path)
    pressure, checkpoints = pressure_watch(sampler), node.service()
    services = Services(
        access=Access(Authenticator(), BuiltInGroups()),
        config=lambda: config,
        features=Features({"AllAlpha": True}),
        zpages=ZPages("nodeagent", {"port": "10250"}),
        pages=StatsPages(sampler, node_name="n1"),
        pressure=pressure,
        registry=registry,
        checkpoints=checkpoints,
        overview=Overview(
            History(sampler), pressure, registry, checkpoints, health, node_name="n1", cpus=2
        ),
        streams=ContainerStreams(
            registry, node.runtime, idle_s=lambda: 0, run_timeout_s=lambda: 10
        ),
        health=health,
        slis=slis,
        metrics=metrics,
        probes=Registry(),
        http=HttpMetrics(metrics),
    )
    yield Agent(services, node.runtime, pki)
    assert services.checkpoints
    await services.checkpoints.close()


@asynccontextmanager
async def served(agent: Agent, pair: Credentials, ca_file: str) -> AsyncIterator[Agent]:
    context = httpd.server_context(pair.cert_file, pair.key_file, client_ca_file=ca_file)
    listener = HttpServer(agent.app, host="127.0.0.1", port=0, ssl_context=context, name="agent")
    agent.port = await listener.start()
    try:
        yield agent
    finally:
        await listener.stop(1.0)


@pytest_asyncio.fixture
async def agent(unserved: Agent, pki: Pki) -> AsyncIterator[Agent]:
    async with served(unserved, pki.server(), pki.ca_file) as agent:
        yield agent


@pytest.fixture
def reviews() -> FakeReviews:
    """The API server's answers for `delegated`: none is yes before a test says so."""
    return FakeReviews()


@pytest_asyncio.fixture
async def delegated(unserved: Agent, pki: Pki, reviews: FakeReviews) -> AsyncIterator[Agent]:
    """An agent that has every decision made by `reviews` anew."""
    tokens = Tokens(reviews, keep_s=lambda: 0)
    authorizer = Reviewed(reviews, keep_s=lambda _: 0)
    access = Access(Authenticator(tokens=tokens), authorizer)
    agent = Agent(replace(unserved.services, access=access), unserved.runtime, pki)
    async with served(agent, pki.server(), pki.ca_file) as agent:
        yield agent
