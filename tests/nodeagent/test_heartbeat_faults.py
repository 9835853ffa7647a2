"""The Lease loop over real TLS and a link that fails: renewed whenever that was possible.

Times are a twentieth of production's: renewed every 500 ms, a call is given up after a second.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeagent.heartbeat import LeaseLoop
from orch.client.kubeconfig import ClientConfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.process import clock, loops
from orch.wire.records.core import Node
from orch.wire.records.meta import ObjectMeta
from tests.fakes.link import Link
from tests.orch.server.harness import Api, Pki, make_pki

pytestmark = [pytest.mark.slow, pytest.mark.seconds(25)]

TIMEOUT_S = 1.0
BUSY_S = 10.0  # what a loaded machine may add


class Agent:
    """A Lease loop whose only way to the API server is `link`."""

    def __init__(self, api: Api, pki: Pki, link: Link, folder: Path, timeout_s: float) -> None:
        self.api = api
        self.pki = pki
        self.link = link
        self.cert, self.key = folder / "node.crt", folder / "node.key"
        self.use_certificate("n1")
        config = ClientConfig(
            server=f"https://127.0.0.1:{link.port}",
            ca_file=pki.ca_file,
            cert_file=str(self.cert),
            key_file=str(self.key),
        )
        self.transport = Transport(config, timeout_s=timeout_s)
        self.loop = LeaseLoop(ApiClient(self.transport), "n1", duration_s=2, timeout_s=timeout_s)
        self.task = loops.spawn(self.loop.run(), name="lease")

    def use_certificate(self, user: str) -> None:
        pair = self.pki.users[user]
        shutil.copy(pair.cert_file, self.cert)
        shutil.copy(pair.key_file, self.key)

    async def renewed(self, times: int = 2, *, within_s: float = 10.0) -> None:
        """Wait for that many renewals from now on."""
        wanted = self.loop.renewals + times
        async with asyncio.timeout(within_s):
            while self.loop.renewals < wanted:
                assert not self.task.done(), "the loop ended"
                await asyncio.sleep(0.01)

    async def failing(self) -> None:
        failures = self.loop.failures + 3
        async with asyncio.timeout(10):
            while self.loop.failures < failures:
                await asyncio.sleep(0.01)


@pytest.fixture
async def agent(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Agent]:
    pki = make_pki(tmp_path / "pki", clock.utc_now())
    api = await Api.start(pki, tmp_path / "data")
    link = Link(api.port)
    await link.start()
    created = await api.call(
        "POST", "/api/v1/nodes", Node(metadata=ObjectMeta(name="n1")).to_wire()
    )
    assert created.status == 201
    agent = Agent(api, pki, link, tmp_path, getattr(request, "param", TIMEOUT_S))
    await agent.renewed()
    yield agent
    await loops.cancel(agent.task)
    await agent.transport.close()
    await link.stop()
    await api.stop()


async def test_a_broken_connection_is_reopened_at_once(agent: Agent) -> None:
    await agent.link.cut()
    await agent.renewed()
    assert agent.loop.failures <= 1


async def test_a_dead_connection_is_given_up_after_two_deadlines(agent: Agent) -> None:
    """kubernetes issues 87615 and 92164: a dead connection was reused for minutes."""
    agent.link.swallow_open_connections()
    await agent.renewed(1, within_s=3 * TIMEOUT_S + BUSY_S)
    assert agent.loop.failures <= 2


async def test_a_server_that_was_away_is_found_again_within_the_longest_pause(
    agent: Agent,
) -> None:
    await agent.link.stop()
    await agent.failing()
    await agent.link.start()
    await agent.renewed(within_s=BUSY_S)


async def test_a_network_that_swallows_everything_is_outlived(agent: Agent) -> None:
    with agent.link.black_hole():
        await agent.failing()
    await agent.renewed(within_s=BUSY_S)


async def test_refused_connections_are_retried(agent: Agent) -> None:
    agent.link.refusing = True
    await agent.link.cut()
    await agent.failing()
    agent.link.refusing = False
    await agent.renewed(within_s=BUSY_S)


@pytest.mark.parametrize("agent", [BUSY_S], indirect=True)
async def test_answers_that_are_slow_but_in_time_lose_nothing(agent: Agent) -> None:
    failures = agent.loop.failures
    agent.link.delay_s = 0.6
    await agent.renewed(3)
    assert agent.loop.failures == failures


async def test_answers_that_come_too_late_are_retried_until_they_come_in_time(
    agent: Agent,
) -> None:
    agent.link.delay_s = 1.6
    await agent.failing()
    agent.link.delay_s = 0.0
    await agent.renewed(within_s=BUSY_S)


async def test_a_certificate_that_became_bad_is_read_again_when_it_is_replaced(
    agent: Agent,
) -> None:
    agent.use_certificate("stranger")
    agent.link.refusing = True
    await agent.link.cut()
    await agent.failing()  # so that it dials anew
    agent.link.refusing = False
    await agent.failing()
    agent.use_certificate("n1")
    await agent.renewed(within_s=BUSY_S)


@pytest.mark.may_block
async def test_a_blocked_event_loop_is_caught_up_with(agent: Agent) -> None:
    time.sleep(2.0)
    await agent.renewed(within_s=BUSY_S)
