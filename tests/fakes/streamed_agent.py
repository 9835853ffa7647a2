"""An agent whose pods have streams, before a fake runtime and its streaming server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from nodeagent.pods.observed import observed_pod
from nodeagent.runtime import base
from orch.component.streams import spdy
from tests.fakes import pods
from tests.fakes.agent import Agent
from tests.fakes.streaming import StreamingServer, streaming

EXEC = "/exec/default/web/app?command=sh&command=-c&output=1&error=1"
TERMINAL = pods.container_data("term", tty=True)
WEBSOCKET = (
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)  # fmt: skip


@pytest_asyncio.fixture
async def runtime() -> AsyncIterator[StreamingServer]:
    async with streaming() as server:
        yield server


@pytest_asyncio.fixture
async def reached(agent: Agent, runtime: StreamingServer) -> Agent:
    """An agent whose pod `default/web` has `app` and `term` running, and others that do not."""
    fake = agent.runtime
    fake.stream_address = runtime.address
    spec = base.SandboxSpec("web", "default", pods.UID)
    sandbox_id = await fake.run_sandbox(spec)
    for name in ("app", "term"):
        made = base.ContainerSpec(name, 0, "localhost/busybox:1")
        await fake.start_container(await fake.create_container(sandbox_id, made, spec))
    details = [c.detail for c in fake.containers.values() if c.sandbox_id == sandbox_id]
    sandbox = await fake.sandbox_detail(sandbox_id)
    registry = agent.services.registry
    status = {
        "containerStatuses": [
            {"name": "ended", "state": {"terminated": {"exitCode": 3}}},
            {"name": "waiting", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
        ]
    }
    registry.set_desired([pods.pod("app", TERMINAL, "waiting", "ended", "new", status=status)])
    registry.set_view(observed_pod(pods.UID, [sandbox, *details]))
    return agent


def framed(data: bytes) -> bytes:
    return spdy.FrameWriter().write(spdy.Data(1, data))
