"""Asking the running agent for its pages: known by its certificate, with the operator's right."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from nodeagent.debug.pages import PAGES, AgentEndpoint, page_entries
from orch.component.http import httpd
from orch.component.http.httpd import HttpServer
from tests.conftest import Pki
from tests.fakes.agent import Agent, served
from tests.fakes.agent import sampler as sampler
from tests.fakes.agent import unserved as unserved

pytestmark = pytest.mark.may_block


def target(agent: Agent, serving: str, client: Any = None) -> AgentEndpoint:
    shown = (client.cert_file, client.key_file) if client else ("", "")
    return AgentEndpoint("127.0.0.1", agent.port, serving, *shown)


async def test_every_page_has_an_entry(unserved: Agent, pki: Pki) -> None:
    pair = pki.server("some-other-name")
    async with served(unserved, pair, pki.ca_file) as agent:
        client = pki.client("admin", "system:masters")
        entries = dict(await page_entries(target(agent, pair.cert_file, client)))
        assert len(entries) == len(PAGES)
        assert b"[+]ping ok" in entries["pages/healthz.txt"]
        assert b"nodeagent statusz" in entries["pages/statusz.txt"]
        assert b'"nodeName":"n1"' in entries["pages/stats-summary.txt"]
        assert b"CLASSIFIED" in entries["pages/configz.txt"]


async def test_a_page_that_comes_in_pieces_is_whole(pki: Pki) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b"first ", b"and ", b"last"):
            await response.write(piece)
            await asyncio.sleep(0.05)
        return response

    app, pair = web.Application(), pki.server()
    app.router.add_get("/metrics", slow)
    context = httpd.server_context(pair.cert_file, pair.key_file, client_ca_file=None)
    server = HttpServer(app, host="127.0.0.1", port=0, ssl_context=context, name="slow")
    port = await server.start()
    try:
        entries = dict(await page_entries(AgentEndpoint("127.0.0.1", port, pair.cert_file)))
    finally:
        await server.stop()
    assert entries["pages/metrics.txt"] == b"first and last"


async def test_the_entry_of_a_refused_page_holds_the_error(unserved: Agent, pki: Pki) -> None:
    pair = pki.server()
    async with served(unserved, pair, pki.ca_file) as agent:
        entries = dict(await page_entries(target(agent, pair.cert_file)))
        expected = f"https://127.0.0.1:{agent.port}/metrics: 401\nUnauthorized".encode()
        assert entries["pages/metrics.txt"] == expected


async def test_another_server_on_the_port_gets_no_credential(
    unserved: Agent, pki: Pki, tmp_path: Path
) -> None:
    own, other = pki.server(), pki.server()
    (tmp_path / "token").write_text("canary-token\n")
    async with served(unserved, other, pki.ca_file) as agent:
        # Another certificate, even of the same authority, is not the agent's.
        leaf = tmp_path / "leaf.pem"
        text = Path(own.cert_file).read_text()
        leaf.write_text(
            text[: text.index("-----END CERTIFICATE-----")] + "-----END CERTIFICATE-----\n"
        )
        entries = dict(
            await page_entries(
                AgentEndpoint(
                    "127.0.0.1", agent.port, str(leaf), token_file=str(tmp_path / "token")
                )
            )
        )
    assert all(b"certificate verify failed" in body.lower() for body in entries.values())


async def test_a_missing_agent_or_certificate_is_reported(
    tmp_path: Path, free_port: Any, pki: Pki
) -> None:
    absent, own = str(tmp_path / "absent"), pki.server()
    for asked, text in (
        (
            AgentEndpoint("127.0.0.1", 1, absent),
            f"own certificate {absent} (--tls-cert-file): No such",
        ),
        (
            AgentEndpoint("127.0.0.1", 1, own.cert_file, absent),
            f"client certificate {absent} and its key",
        ),
        (
            AgentEndpoint("127.0.0.1", 1, own.cert_file, token_file=absent),
            f"token file {absent}: No such",
        ),
    ):
        [(name, body)] = await page_entries(asked)
        assert name == "pages/error.txt"
        assert text in body.decode()
    silent = AgentEndpoint("127.0.0.1", free_port(), own.cert_file)
    assert all(b"Cannot connect" in body for _, body in await page_entries(silent))
