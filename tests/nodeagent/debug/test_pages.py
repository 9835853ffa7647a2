"""Asking the running agent for its pages: known by its certificate, with the operator's right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nodeagent.debug.pages import PAGES, Target, page_entries
from tests.conftest import Pki
from tests.fakes.agent import Agent, served
from tests.fakes.agent import sampler as sampler
from tests.fakes.agent import unserved as unserved

pytestmark = pytest.mark.may_block


def target(agent: Agent, serving: str, client: Any = None) -> Target:
    shown = (client.cert_file, client.key_file) if client else ("", "")
    return Target("127.0.0.1", agent.port, serving, *shown)


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


async def test_a_page_that_is_refused_says_so_in_its_place(unserved: Agent, pki: Pki) -> None:
    pair = pki.server()
    async with served(unserved, pair, pki.ca_file) as agent:
        entries = dict(await page_entries(target(agent, pair.cert_file)))
        expected = f"https://127.0.0.1:{agent.port}/metrics: 401\nUnauthorized".encode()
        assert entries["pages/metrics.txt"] == expected


async def test_another_server_on_the_port_is_not_told_the_credential(
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
                Target("127.0.0.1", agent.port, str(leaf), token_file=str(tmp_path / "token"))
            )
        )
    assert all(b"certificate verify failed" in body.lower() for body in entries.values())


async def test_no_agent_and_no_certificate_are_told(
    tmp_path: Path, free_port: Any, pki: Pki
) -> None:
    entries = await page_entries(Target("127.0.0.1", 1, str(tmp_path / "absent")))
    assert [name for name, _ in entries] == ["pages/error.txt"]
    assert b"No such file" in entries[0][1]
    silent = Target("127.0.0.1", free_port(), pki.server().cert_file)
    assert all(b"Cannot connect" in body for _, body in await page_entries(silent))
