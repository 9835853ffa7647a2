"""An API server with two pods on a node, whose agent carries bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orch.component.http.httpd import server_context
from tests.fakes.streaming import StreamingServer
from tests.orch.server.harness import NODES, PODS, Api, Pki, node, pod
from tests.orch.server.nodes.streamed import placed


@pytest.fixture
async def agent(server_pki: Pki) -> AsyncIterator[StreamingServer]:
    pair = server_pki.server
    context = server_context(pair.cert_file, pair.key_file, client_ca_file=server_pki.ca_file)
    agent = StreamingServer()
    await agent.start(context)
    yield agent
    await agent.stop()


@pytest.fixture
async def api(server_pki: Pki, tmp_path: Path, agent: StreamingServer) -> AsyncIterator[Api]:
    arguments = (f"--nodeagent-certificate-authority={server_pki.ca_file}",)
    api = await Api.start(server_pki, tmp_path / "data", "--node-proxy-allow-loopback", *arguments)
    await api.call("POST", NODES, node())
    await placed(api, agent.port)
    for name, bound_to in (("p", "n1"), ("unbound", None)):
        body = pod(name, bound_to)
        body["spec"]["containers"] = [{"name": one, "image": "i"} for one in ("c", "d")]
        assert (await api.call("POST", PODS, body)).status == 201
    yield api
    await api.stop()
