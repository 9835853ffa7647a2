"""What the controller manager serves, and to whom."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from yarl import URL

from orch.component.daemon import SetupError
from orch.component.features import Features
from orch.component.health import HealthChecks, SliMetrics
from orch.component.httpd import HttpServer
from orch.component.zpages import ZPages
from orch.lifecycle import options, serving
from orch.lifecycle.metrics import LifecycleMetrics
from orch.lifecycle.records import Settings
from tests.conftest import Pki

OPEN = ("/healthz", "/livez", "/readyz", "/healthz/ping")
GUARDED = ("/metrics", "/metrics/slis", "/statusz", "/flagz", "/configz")


@dataclass
class Pages:
    slis: SliMetrics = field(default_factory=SliMetrics)
    metrics: LifecycleMetrics = field(default_factory=LifecycleMetrics)
    zpages: ZPages = field(default_factory=lambda: ZPages("orch-controller-manager", {}))
    features: Features = field(default_factory=lambda: Features({"AllAlpha": True}))
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        self.checks = HealthChecks(self.slis)
        self.checks.add("ping", lambda: None)


@asynccontextmanager
async def served(*, guarded: bool, context: ssl.SSLContext, trust: Any) -> AsyncIterator[Any]:
    """A function path → (status, body, content type)."""
    app = serving.application(Pages(), guarded=guarded)
    listener = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="controller")
    port = await listener.start()
    try:
        async with aiohttp.ClientSession() as session:

            async def get(path: str) -> tuple[int, str, str]:
                url = URL(f"https://127.0.0.1:{port}{path}", encoded=True)
                async with session.get(url, ssl=trust) as answer:
                    return answer.status, await answer.text(), answer.headers["Content-Type"]

            yield get
    finally:
        await listener.stop(1.0)


def contexts(pki: Pki, *, certificate: bool) -> dict[str, ssl.SSLContext]:
    pair = pki.server()
    parsed = options.parse(
        [
            "--kubeconfig=x",
            f"--tls-cert-file={pair.cert_file}",
            f"--tls-private-key-file={pair.key_file}",
            f"--client-ca-file={pki.ca_file}",
        ]
    )
    trust = ssl.create_default_context(cafile=pki.ca_file)
    if certificate:
        own = pki.client("prometheus", "system:monitoring")
        trust.load_cert_chain(own.cert_file, own.key_file)
    return {"context": serving.context(parsed), "trust": trust}


@pytest.mark.parametrize(
    ("guarded", "certificate", "expected"),
    [(False, False, 200), (False, True, 200), (True, False, 401), (True, True, 200)],
)
async def test_metrics_take_a_certificate_where_they_are_guarded_and_health_never(
    pki: Pki, guarded: bool, certificate: bool, expected: int
) -> None:
    async with served(guarded=guarded, **contexts(pki, certificate=certificate)) as get:
        for path in OPEN:
            assert (await get(path))[:2] == (200, "ok"), path
        for path in GUARDED:
            assert (await get(path))[0] == expected, path
        # what only looks like an open page is none
        assert (await get("/healthzz"))[0] in (401, 404)
        assert (await get("/livez/..%2fmetrics"))[0] == 404


async def test_the_pages_are_metrics_in_the_text_format(pki: Pki) -> None:
    async with served(guarded=False, **contexts(pki, certificate=False)) as get:
        _, body, content_type = await get("/metrics")
        assert "node_collector_evictions_total" in body
        assert content_type.startswith("text/plain; version=0.0.4")
        await get("/readyz")
        _, body, content_type = await get("/metrics/slis")
        assert 'orch_healthcheck{name="ping",type="readyz"} 1' in body
        assert content_type.startswith("text/plain; version=0.0.4")


async def test_without_a_certificate_of_its_own_it_makes_one_up_for_this_run(pki: Pki) -> None:
    parsed = options.parse(["--kubeconfig=x"])
    async with served(guarded=False, context=serving.context(parsed), trust=False) as get:
        assert (await get("/healthz"))[:2] == (200, "ok")


def test_a_certificate_that_cannot_be_used_is_named() -> None:
    parsed = options.parse(
        ["--kubeconfig=x", "--tls-cert-file=/absent.crt", "--tls-private-key-file=/absent.key"]
    )
    with pytest.raises(SetupError, match="/absent"):
        serving.context(parsed)


async def test_debugging_pages_are_off_unless_switched_on() -> None:
    pages = Pages(features=Features({}))
    served = {
        route.resource.canonical
        for route in serving.application(pages, guarded=True).router.routes()
        if route.resource
    }
    assert "/configz" in served
    assert not {"/statusz", "/flagz"} & served


async def test_configz_shows_how_nodes_are_judged(pki: Pki) -> None:
    async with served(guarded=False, **contexts(pki, certificate=False)) as get:
        status, body, content_type = await get("/configz")
    assert (status, content_type) == (200, "application/json")
    assert json.loads(body)["controllermanagerconfig"]["grace_s"] == 50.0
