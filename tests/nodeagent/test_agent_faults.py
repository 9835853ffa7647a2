"""One installed agent in its own network, as an operator sees it while something is wrong with it.

The table of docs/heartbeats.md. One agent lives through the whole of it, must never end, and its
Lease is renewed again as soon as that is possible. Minutes of it are for `make soak`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from orch.component.process import clock
from orch.wire import times
from tests.fakes.cri_server import CriServer
from tests.fakes.runtime import FakeRuntime
from tests.fakes.wallclock import WallClock
from tests.nodeagent.lonelyagent import (
    LonelyAgent,
    answering,
    expired_certificate,
    lonely_agent,
)
from tests.orch.server.harness import LEASES, NODES

DOWN_S = 45.0  # docs/heartbeats.md: until a dead runtime shows
PAUSE_S = 7.0  # the longest between two tries
BUSY_S = 13.0  # what a loaded machine may add
_MOST_CAUSES = (
    4  # of one fault, as a client sees it: refused, in two ways broken off, what is behind
)
LOST, AGAIN = "cannot renew the Lease of node n1", "the Lease of node n1 is renewed again (after"

pytestmark = [
    pytest.mark.may_block,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None,
        reason="needs root and iproute2, for a network namespace",
    ),
    pytest.mark.real,
    pytest.mark.seconds(75),
]


@asynccontextmanager
async def told(agent: LonelyAgent, cause: str) -> AsyncIterator[None]:
    """Inside, the fault; the loss is said with its cause, and its end within the longest pause."""
    mark = len(agent.log())
    yield
    await asyncio.wait_for(agent.renewed(), PAUSE_S + BUSY_S)
    await agent.says(AGAIN, after=mark)
    lines = [line.partition(LOST)[2] for line in agent.log()[mark:].splitlines() if LOST in line]
    assert any(cause in line for line in lines), lines
    assert len(lines) == len(set(lines)) <= _MOST_CAUSES, "each cause is said once"


async def down(agent: LonelyAgent, seconds: float) -> None:
    async with told(agent, "cannot reach https://n1:"):
        await agent.link.stop()
        await asyncio.sleep(seconds)
        await agent.link.start()


async def refused(agent: LonelyAgent, code: int) -> None:
    mark = len(agent.log())
    async with answering(code, agent.api.pki) as port, told(agent, f"no, {code}"):
        right, agent.link.server_port = agent.link.server_port, port
        await agent.link.cut()
        await agent.says(LOST, after=mark)
        agent.link.server_port = right
        await agent.link.cut()


async def undialable(
    agent: LonelyAgent, spoil: Callable[[], None], mend: Callable[[], None]
) -> None:
    """What only hurts when dialling anew: with open connections nobody notices."""
    mark = len(agent.log())
    async with told(agent, "cannot reach https://n1:"):
        spoil()
        agent.link.refusing = True
        await agent.link.cut()
        await agent.says(LOST, after=mark)
        agent.link.refusing = False
        with pytest.raises(TimeoutError):
            await agent.renewed(within_s=PAUSE_S + 1.0)
        mend()


async def expired(agent: LonelyAgent, folder: Path) -> None:
    pair = expired_certificate(folder / "pki")
    good = agent.api.pki.users["n1"]
    await undialable(
        agent, lambda: agent.use_certificate(pair), lambda: agent.use_certificate(good)
    )


async def nameless(agent: LonelyAgent) -> None:
    await undialable(agent, lambda: agent.network.resolve(works=False), agent.network.resolve)


async def blocked(agent: LonelyAgent, seconds: float) -> None:
    """The whole process stands still, its event loop with it."""
    agent.send(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    agent.send(signal.SIGCONT)
    assert await agent.renewed(within_s=BUSY_S) < BUSY_S


async def slow(agent: LonelyAgent, seconds: float, *, pieces: int = 1) -> None:
    """In time: renewals are late, none is lost."""
    mark = len(agent.log())
    agent.link.delay_s = seconds
    for _ in range(pieces):
        await agent.renewed(within_s=4 * seconds + BUSY_S)
    agent.link.delay_s = 0.0
    await agent.renewed()
    assert LOST not in agent.log()[mark:]


async def dropped(agent: LonelyAgent, seconds: float) -> None:
    """Nothing is refused and nothing answered; what is open may be dead without knowing it."""
    with agent.network.dropping():
        await asyncio.sleep(0.5)  # for an answer that was on its way
        with pytest.raises(TimeoutError):
            await agent.renewed(within_s=seconds)
    await agent.renewed(within_s=2 * 10 + PAUSE_S + BUSY_S)


async def deleted(agent: LonelyAgent, path: str) -> None:
    """Somebody deletes the object, which the agent makes again."""

    async def uid() -> str:
        answer = await agent.api.call("GET", path)
        return str(answer.json["metadata"]["uid"]) if answer.status == 200 else ""

    before = await uid()
    assert (await agent.api.call("DELETE", path)).status == 200

    async def is_back() -> bool:
        return await uid() not in ("", before)

    await agent.until(is_back, within_s=BUSY_S)
    await agent.renewed(within_s=BUSY_S)


async def jumped(agent: LonelyAgent, wall: WallClock, hours: int) -> None:
    """Seen in the Lease, and otherwise of no effect; nor on a connection that is dialled then."""
    mark = len(agent.log())
    wall.jump(3600 * hours)
    await agent.renewed(within_s=BUSY_S)
    await agent.link.cut()
    await agent.renewed(within_s=BUSY_S)
    off = times.parse_time(await agent.renew_time()) - clock.utc_now()
    assert abs(off - timedelta(hours=hours)) < timedelta(minutes=5)
    assert LOST not in agent.log()[mark:]
    assert (await agent.ready())["status"] in ("True", "False")


async def test_one_agent_outlives_the_table_of_short_faults(tmp_path: Path) -> None:
    async with lonely_agent(tmp_path) as agent:
        await down(agent, 5.0)
        await slow(agent, 2.0)
        for code in (409, 429, 500, 503):
            await refused(agent, code)
        await expired(agent, tmp_path)
        await nameless(agent)
        await blocked(agent, 3.0)
        await dropped(agent, 3.0)
        await deleted(agent, f"{LEASES}/n1")
        await deleted(agent, f"{NODES}/n1")
        assert (await agent.ready())["status"] in ("True", "False")
        assert "failed unexpectedly" not in agent.log()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, to move one process's clock")
async def test_a_wall_clock_that_jumps_by_an_hour_is_of_no_effect(tmp_path: Path) -> None:
    wall = WallClock(tmp_path)
    async with lonely_agent(tmp_path, environment=wall.environment) as agent:
        for hours in (1, -1, 0):
            await jumped(agent, wall, hours)
        assert "failed unexpectedly" not in agent.log()


async def test_a_full_disk_does_not_stop_the_lease(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        async with lonely_agent(tmp_path, f"--root-dir={small}") as agent:
            with pytest.raises(OSError, match="No space left"), (small / "full").open("wb") as file:
                file.write(bytes(2 << 20))
            for _ in range(5):
                await agent.renewed(within_s=BUSY_S)
            (small / "full").unlink()
            await agent.renewed(within_s=BUSY_S)
            assert LOST not in agent.log()
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.soak
@pytest.mark.timeout(240)
async def test_a_dead_runtime_is_reported_and_does_not_stop_the_lease(tmp_path: Path) -> None:
    runtime = CriServer(FakeRuntime(), tmp_path / "cri.sock")
    await runtime.start()
    try:
        flag = f"--container-runtime-endpoint={runtime.endpoint}"
        async with lonely_agent(tmp_path, flag) as agent:

            async def is_down() -> bool:
                return "container runtime is down" in (await agent.ready()).get("message", "")

            async def is_up() -> bool:
                message = (await agent.ready()).get("message", "")
                return bool(message) and "container runtime" not in message

            await agent.until(is_up)
            await runtime.stop()
            assert await agent.until(is_down, within_s=DOWN_S) > 20
            assert (await agent.ready())["status"] == "False"
            await agent.renewed(within_s=BUSY_S)
            await runtime.start()
            await agent.until(is_up)
            assert LOST not in agent.log()
    finally:
        await runtime.stop()


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seconds", [60.0, 600.0])
async def test_an_api_server_that_is_away_for_long(tmp_path: Path, seconds: float) -> None:
    async with lonely_agent(tmp_path) as agent:
        await down(agent, seconds)


@pytest.mark.soak
@pytest.mark.timeout(600)
async def test_long_faults(tmp_path: Path) -> None:
    async with lonely_agent(tmp_path) as agent:
        await slow(agent, 9.0, pieces=2)
        async with told(agent, "no answer within 10 s"):
            agent.link.delay_s = 30.0
            await asyncio.sleep(60)
            agent.link.delay_s = 0.0
        await dropped(agent, 60.0)
        await blocked(agent, 45.0)
