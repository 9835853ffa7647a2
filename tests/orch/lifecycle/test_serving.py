"""The pages of the controller manager, and who may read them."""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from orch.component.diagnostics.health import HealthChecks, SliMetrics
from orch.component.diagnostics.zpages import ZPages
from orch.component.flags.features import Features
from orch.component.http import httpd
from orch.component.http.httpd import HttpServer
from orch.component.process.daemon import SetupError
from orch.lifecycle import options, serving
from orch.lifecycle.decide.records import Settings
from orch.lifecycle.metrics import LifecycleMetrics
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
async def served(*, context: ssl.SSLContext, trust: Any) -> AsyncIterator[Any]:
    """A function path → (status, body, content type)."""
    app = serving.application(Pages())
    listener = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="controller")
    port = await listener.start()
    try:
        async with aiohttp.ClientSession() as session:

            async def get(path: str, method: str = "GET") -> tuple[int, str, str]:
                url = URL(f"https://127.0.0.1:{port}{path}", encoded=True)
                async with session.request(method, url, ssl=trust) as answer:
                    return answer.status, await answer.text(), answer.headers["Content-Type"]

            yield get
    finally:
        await listener.stop(1.0)


def serving_options(pki: Pki) -> options.Options:
    pair = pki.server()
    return options.parse(
        [
            "--kubeconfig=x",
            f"--tls-cert-file={pair.cert_file}",
            f"--tls-private-key-file={pair.key_file}",
            f"--client-ca-file={pki.ca_file}",
        ]
    )


def contexts(pki: Pki, group: str = "") -> dict[str, ssl.SSLContext]:
    """The server's, and that of a client with a certificate of a group, if one is named."""
    trust = ssl.create_default_context(cafile=pki.ca_file)
    if group:
        own = pki.client("somebody", group)
        trust.load_cert_chain(own.cert_file, own.key_file)
    return {"context": serving.context(serving_options(pki)), "trust": trust}


EVERYTHING = dict.fromkeys(GUARDED, 200)
# Group of the certificate → what each guarded page answers.
RIGHTS = {
    "": dict.fromkeys(GUARDED, 401),
    "visitors": dict.fromkeys(GUARDED, 403),
    "system:nodes": dict.fromkeys(GUARDED, 403),
    "system:monitoring": EVERYTHING | {"/configz": 403},
    "system:masters": EVERYTHING,
}


@pytest.mark.parametrize("group", RIGHTS)
async def test_a_guarded_page_is_for_those_who_may_read_it_and_health_for_everyone(
    pki: Pki, group: str
) -> None:
    async with served(**contexts(pki, group)) as get:
        for path in OPEN:
            assert (await get(path))[:2] == (200, "ok"), path
        assert {path: (await get(path))[0] for path in GUARDED} == RIGHTS[group]
        unknown = {"": 401, "system:masters": 404}.get(group, 403)
        for path in ("/healthzz", "/metricsz", "/livezz/ping", "/"):
            assert (await get(path))[0] == unknown, path
        assert (await get("/livez/..%2fmetrics"))[0] == 404  # is no check, and no other page


@pytest.mark.parametrize("group", ["", "visitors", "system:masters"])
async def test_without_a_client_ca_nobody_may_read_more_than_health(pki: Pki, group: str) -> None:
    pair = pki.server()
    alone = httpd.server_context(pair.cert_file, pair.key_file, client_ca_file=None)
    async with served(**{**contexts(pki, group), "context": alone}) as get:
        for path in OPEN:
            assert (await get(path))[:2] == (200, "ok"), path
        assert {path: (await get(path))[0] for path in GUARDED} == dict.fromkeys(GUARDED, 401)


async def test_every_page_is_open_or_has_a_line_in_the_table() -> None:
    """A new page fails this until it has its place above."""
    app = serving.application(Pages())
    found = {route.resource.canonical for route in app.router.routes() if route.resource}
    health = {path for one in OPEN[:3] for path in (one, f"{one}/{{check}}")}
    assert found - health == set(GUARDED)


async def test_monitoring_may_read_and_nothing_else(pki: Pki) -> None:
    for group, expected in (("system:monitoring", 403), ("system:masters", 405)):
        async with served(**contexts(pki, group)) as get:
            status, body, _ = await get("/metrics", method="DELETE")
        assert status == expected
        if status == 403:
            assert body == "Forbidden (user=somebody, method=DELETE, path=/metrics)\n"


@pytest.mark.may_block
async def test_its_tls_is_kept_as_its_files_are(pki: Pki, tmp_path: Path) -> None:
    parsed = serving_options(pki)
    files = serving.files(parsed)
    http = HttpServer(
        serving.application(Pages()),
        host="127.0.0.1", port=0, ssl_context=serving.context(parsed), name="controller",
    )  # fmt: skip
    renewal = serving.renewal(http, parsed, files)
    first = http.ssl_context
    await renewal.step()
    assert http.ssl_context is first
    (tmp_path / "other").mkdir()
    other = Pki(tmp_path / "other")
    shutil.copyfile(other.ca_file, parsed.client_ca_file)
    await renewal.step()
    assert renewal.renewals == 1
    assert http.ssl_context is not first


async def test_a_made_up_certificate_has_no_files_to_follow() -> None:
    parsed = options.parse(["--kubeconfig=x"])
    http = HttpServer(serving.application(Pages()), host="", port=0, name="x")
    renewal = serving.renewal(http, parsed, serving.files(parsed))
    for _ in range(2):
        await renewal.step()
    assert renewal.renewals == 0


async def test_the_pages_are_metrics_in_the_text_format(pki: Pki) -> None:
    async with served(**contexts(pki, "system:masters")) as get:
        _, body, content_type = await get("/metrics")
        assert "node_collector_evictions_total" in body
        assert content_type.startswith("text/plain; version=0.0.4")
        await get("/readyz")
        _, body, content_type = await get("/metrics/slis")
        assert 'orch_healthcheck{name="ping",type="readyz"} 1' in body
        assert content_type.startswith("text/plain; version=0.0.4")


async def test_without_a_certificate_of_its_own_it_makes_one_up_for_this_run(pki: Pki) -> None:
    parsed = options.parse(["--kubeconfig=x"])
    async with served(context=serving.context(parsed), trust=False) as get:
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
        for route in serving.application(pages).router.routes()
        if route.resource
    }
    assert "/configz" in served
    assert not {"/statusz", "/flagz"} & served


async def test_configz_shows_how_nodes_are_judged(pki: Pki) -> None:
    async with served(**contexts(pki, "system:masters")) as get:
        status, body, content_type = await get("/configz")
    assert (status, content_type) == (200, "application/json")
    assert json.loads(body)["controllermanagerconfig"]["grace_s"] == 50.0
