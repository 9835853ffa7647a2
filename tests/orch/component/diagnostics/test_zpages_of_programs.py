"""nodeagent.md §5 and §6.2, row by row, asked of all three programs over TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from orch.component.diagnostics.health import CheckFailed, HealthChecks, SliMetrics
from orch.component.diagnostics.zpages import ZPages
from orch.component.http.httpd import HttpServer, server_context
from orch.component.process import clock
from orch.component.process.daemon import SetupError
from orch.lifecycle import options, serving
from orch.lifecycle.metrics import LifecycleMetrics
from orch.server.storage.base import StorageFailed
from tests.conftest import Pki
from tests.fakes.agent import ADMIN, Agent
from tests.fakes.agent import agent as agent
from tests.fakes.agent import sampler as sampler
from tests.fakes.agent import unserved as unserved
from tests.orch.server.harness import Api, make_pki

pytestmark = pytest.mark.may_block

# nodeagent.md §4.3: on every program's own /metrics
FRAMEWORK = (
    "registered_metrics_total{", "hidden_metrics_total ", "disabled_metrics_total ",
    'orch_feature_enabled{name="ComponentSLIs",stage=""} 1', "orch_build_info{", "version_info{",
    "orch_client_certificates_refused_total{",
)  # fmt: skip
PROGRAMS = ("nodeagent", "orch-apiserver", "orch-controller-manager")
V1 = "v=v1alpha1;g=config.orch.io;as="


class Program:
    """`ask` takes (path, accept); `checked` is one of its checks, which `broken` makes fail."""

    def __init__(self, name: str, ask: Any, checked: str) -> None:
        self.name, self.ask, self.checked = name, ask, checked
        self.broken = False

    async def break_(self) -> None:
        self.broken = True

    def check(self) -> None:
        if self.broken:
            raise CheckFailed("the disk is on fire")


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
async def _agent(name: str, served: Agent) -> AsyncIterator[Program]:
    async with served.session(ADMIN) as ask:
        program = Program(
            name, lambda path, accept: ask("GET", path, headers=_accept(accept)), "disk"
        )
        served.services.health.add("disk", program.check)
        yield program


class ApiServer(Program):
    """Whose check is that storage takes writes."""

    def __init__(self, name: str, api: Api) -> None:
        def ask(path: str, accept: str) -> Any:
            return api.call("GET", path, accept=accept or "text/plain")

        super().__init__(name, ask, "etcd")
        self._api = api

    async def break_(self) -> None:
        async def fails() -> None:
            raise StorageFailed("the disk is on fire")

        self._api.server.storage.check = fails  # type: ignore[method-assign]
        await self._api.server.storage_health.look()


@asynccontextmanager
async def _api(name: str, folder: Path) -> AsyncIterator[Program]:
    pki = make_pki(folder / "api-pki", clock.utc_now())
    api = await Api.start(pki, folder / "data", "--feature-gates=AllAlpha=true")
    try:
        yield ApiServer(name, api)
    finally:
        await api.stop()


@asynccontextmanager
async def _manager(name: str, pki: Pki) -> AsyncIterator[Program]:
    pair = pki.server()
    context = server_context(pair.cert_file, pair.key_file, client_ca_file=pki.ca_file)
    pages = Manager()
    app = serving.application(pages)
    listener = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="manager")
    port = await listener.start()
    trust = ssl.create_default_context(cafile=pki.ca_file)
    own = pki.client("admin", "system:masters")
    trust.load_cert_chain(own.cert_file, own.key_file)
    try:
        async with aiohttp.ClientSession() as session:
            program = Program(
                name,
                lambda path, accept: _asked(session, port, path, accept, trust),
                "node-monitor",
            )
            pages.checks.add("node-monitor", program.check)
            yield program
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
) -> AsyncIterator[Program]:
    name = request.param
    opened = {
        "nodeagent": lambda: _agent(name, agent),
        "orch-apiserver": lambda: _api(name, tmp_path),
        "orch-controller-manager": lambda: _manager(name, pki),
    }[name]
    async with opened() as program:
        yield program


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
    (f"application/yaml;{V1}KIND", 406, False),
    ("", 200, False),
    ("application/json;v=foo;g=config.orch.io;as=KIND,*/*", 200, False),
]


async def test_each_row_of_the_negotiation(program: Program) -> None:
    name, ask = program.name, program.ask
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


async def test_metrics_and_slis_are_served(program: Program) -> None:
    name, ask = program.name, program.ask
    await ask("/healthz", "")
    slis = await ask("/metrics/slis", "")
    assert 'orch_healthcheck{name="ping",type="healthz"} 1' in slis.text
    assert 'orch_healthchecks_total{name="ping",status="success",type="healthz"} 1' in slis.text
    if name == "orch-apiserver":  # the others' page here is not the program's own
        page = (await ask("/metrics", "")).text
        assert [family for family in FRAMEWORK if f"\n{family}" not in page] == []


CONFIGURATIONS = {
    "nodeagent": ("nodeagentconfig", "healthzPort"),
    "orch-apiserver": ("apiserverconfig", "request-timeout"),
    "orch-controller-manager": ("controllermanagerconfig", "grace_s"),
}


async def test_configz_is_served_and_nothing_to_profile_or_debug_with(program: Program) -> None:
    answer = await program.ask("/configz", "")
    assert answer.headers["Content-Type"] == "application/json"
    name, setting = CONFIGURATIONS[program.name]
    assert f'{{"{name}":{{' in answer.text
    assert f'"{setting}":' in answer.text
    for path in ("/debug/pprof/", "/debug/pprof/profile", "/debug/flags/v", "/debug", "/logs/"):
        assert (await program.ask(path, "")).status == 404, path


async def test_a_failing_check_fails_health_and_the_slis_count_both_results(
    program: Program,
) -> None:
    name = program.checked
    for endpoint in ("healthz", "livez", "readyz"):
        assert (await program.ask(f"/{endpoint}", "")).text == "ok"
    await program.break_()
    for endpoint in ("healthz", "livez", "readyz"):
        answer = await program.ask(f"/{endpoint}", "")
        assert answer.status == 500
        assert f"[-]{name} failed: reason withheld\n" in answer.text
        assert "fire" not in answer.text
        assert answer.text.endswith(f"{endpoint} check failed\n")
        assert (await program.ask(f"/{endpoint}/ping", "")).status == 200
        slis = (await program.ask("/metrics/slis", "")).text
        assert f'orch_healthcheck{{name="{name}",type="{endpoint}"}} 0\n' in slis
        assert f'orch_healthcheck{{name="ping",type="{endpoint}"}} 1\n' in slis
        for status in ("success", "error"):
            labels = f'name="{name}",status="{status}",type="{endpoint}"'
            assert f"orch_healthchecks_total{{{labels}}} 1\n" in slis


def test_a_gate_that_does_not_exist_is_named_by_the_controller_manager() -> None:
    with pytest.raises(SetupError, match="did you mean ComponentStatusz"):
        options.parse(["--kubeconfig=x", "--feature-gates=ComponentStatus=true"])
