"""Streams through an agent: whose time they take, how much they hold, and when they end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.wiring.agent import build_streams
from orch.component.http import connection, tcp
from orch.component.http.intake import Intake, Receiver
from orch.component.streams import spdy, upgrade
from tests.conftest import Pki
from tests.fakes.agent import ADMIN, Agent, served
from tests.fakes.streamed_agent import EXEC, WEBSOCKET, framed
from tests.fakes.streamed_agent import reached as reached
from tests.fakes.streamed_agent import runtime as runtime
from tests.fakes.streaming import ASK, StreamingServer, Upgraded, upgraded

ESTABLISHED = 1


async def test_the_time_that_frames_take_is_that_of_the_pod_s_namespace(
    reached: Agent, runtime: StreamingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server's address was the one payer: a flood of one tenant delayed all others. What
    waits for its time when the client ends still arrives.
    """
    payers, got = set[object](), bytearray()
    take = Intake.take

    def noted(intake: Intake, receiver: Receiver) -> None:
        payers.add(receiver.payer)
        take(intake, receiver)

    async def keep(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            got.extend(data)

    monkeypatch.setattr(Intake, "take", noted)
    runtime.talk = keep
    frames = spdy.FrameWriter().write(spdy.Ping(1)) * 10_000
    async with upgraded(reached.port, f"POST {EXEC}", tls=reached.context(ADMIN)) as client:
        assert payers == {"127.0.0.1"}
        payers.clear()
        client.writer.write(frames)
        await client.writer.drain()
        client.writer.close()
        async with asyncio.timeout(20):
            while len(got) < len(frames):
                await asyncio.sleep(0.01)
    assert got == frames
    assert payers == {"default"}


async def test_messages_of_many_streams_are_kept_short(
    reached: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """384 streams with 4 MiB of a message each, half sent, took 1.5 GiB of the agent."""
    monkeypatch.setattr(upgrade, "ROOMY", 1)
    asked = "GET /portForward/default/web"
    headers = (*WEBSOCKET, "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io")
    tls = reached.context(ADMIN)
    head = b"\x82\xff" + (200_000).to_bytes(8, "big")
    async with (
        upgraded(reached.port, asked, headers, tls=tls) as first,
        upgraded(reached.port, asked, headers, tls=tls) as second,
        asyncio.timeout(10),
    ):
        for client in (first, second):
            client.writer.write(head)
        assert (await second.reader.readuntil(b"\x03\xf1"))[-4] == 0x88  # closed: too large
        assert not first.reader.at_eof()


async def test_a_stream_that_is_idle_for_the_configured_time_ends(reached: Agent, pki: Pki) -> None:
    config = NodeAgentConfiguration.model_validate({"streamingConnectionIdleTimeout": "200ms"})
    registry = reached.services.registry
    base: Any = SimpleNamespace(registry=registry, runtime=reached.runtime, config=config)
    services = replace(reached.services, streams=build_streams(base))
    async with (
        served(Agent(services, reached.runtime, pki), pki.server(), pki.ca_file) as agent,
        upgraded(agent.port, f"POST {EXEC}", tls=agent.context(ADMIN)) as client,
        asyncio.timeout(10),
    ):
        assert client.status == 101
        assert await client.reader.read() == b""


async def test_streams_end_when_the_agent_stops(reached: Agent, runtime: StreamingServer) -> None:
    async with upgraded(reached.port, f"POST {EXEC}", tls=reached.context(ADMIN)) as client:
        assert await client.say(framed(b"x")) == framed(b"x")
        await reached.app.shutdown()
        async with asyncio.timeout(10):
            assert await client.reader.read() == b""
    async with upgraded(reached.port, f"POST {EXEC}", tls=reached.context(ADMIN)) as client:
        assert (client.status, await client.body()) == (503, "this server is stopping")
    async with asyncio.timeout(10):
        while runtime.open:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_tunnel", [False, True])
async def test_a_pod_may_take_none_of_its_input_for_longer_than_one_that_is_gone(
    reached: Agent, runtime: StreamingServer, monkeypatch: pytest.MonkeyPatch, is_tunnel: bool
) -> None:
    """A dump for a database that built an index was cut after a minute."""
    monkeypatch.setattr(tcp, "UNACKNOWLEDGED_MS", 1000)
    monkeypatch.setattr(upgrade, "_LOOK_S", 0.05)
    frames, tls = framed(bytes(64_000)) * 250, reached.context(ADMIN)

    async def build_an_index(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(3)
        assert await reader.readexactly(len(frames)) == frames
        writer.write(b"taken")

    runtime.talk = build_an_index
    asked, headers, head = f"POST {EXEC}", ASK, b""
    if is_tunnel:
        asked = "GET /portForward/default/web"
        headers = (*WEBSOCKET, "Sec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io")
        head = b"\x82\xff" + len(frames[:64_008]).to_bytes(8, "big") + bytes(4)
    async with upgraded(reached.port, asked, headers, tls=tls) as client, asyncio.timeout(30):
        for start in range(0, len(frames), 64_008):
            client.writer.write(head + frames[start : start + 64_008])
        await client.reader.readuntil(b"taken")


def unread_bytes(agent: Agent, client: Upgraded) -> int:
    """Of the client's, that the kernel holds for the agent."""
    ours = client.writer.get_extra_info("sockname")[1]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, _, waiting, *_ = line.split()
        if (here[-4:], there[-4:]) == (f"{agent.port:04X}", f"{ours:04X}"):
            return int(waiting.partition(":")[2], 16)
    return 0


@pytest.mark.parametrize("end", ["reset", "closed", "closed, and taken"])
async def test_the_end_of_a_client_is_seen_though_nothing_more_is_read_of_it(
    reached: Agent, runtime: StreamingServer, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """A pod that takes none of its input kept such streams for a minute. What a client sent before
    a clean end arrives if the pod goes on soon, however long it took nothing before.
    """
    stall_s = 2.0 if end == "closed, and taken" else 0.3
    monkeypatch.setattr(connection, "STALL_S", stall_s)
    monkeypatch.setattr(upgrade, "_LOOK_S", 0.05)
    taken_bytes, sent_bytes, frame, is_hungry = 0, 0, framed(bytes(60_000)), False

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken_bytes
        while not is_hungry and tcp.state_of(writer.get_extra_info("socket")) == ESTABLISHED:
            await asyncio.sleep(0.01)
        while is_hungry and (data := await reader.read(65536)):
            taken_bytes += len(data)

    runtime.talk = talk
    async with (
        upgraded(reached.port, f"POST {EXEC}", tls=reached.context(ADMIN)) as client,
        asyncio.timeout(100),  # on a busy machine it takes a while until all is full
    ):
        full = 0  # looks, one after the other: at first the agent only has not read it yet
        while full < 50:
            full += 1
            if unread_bytes(reached, client) < 100_000:
                full = 0
                client.writer.write(frame)
                sent_bytes += len(frame)
            await asyncio.sleep(0.01)
        await asyncio.sleep(stall_s + 0.5)
        assert unread_bytes(reached, client) and runtime.open == 1
        if end == "reset":
            tcp.reset(client.writer.transport)
        else:
            client.writer.transport.abort()
        if end == "closed, and taken":
            await asyncio.sleep(0.5)  # in which it is looked at
            is_hungry = True
        while runtime.open:
            await asyncio.sleep(0.01)
    assert (taken_bytes == sent_bytes) is is_hungry
