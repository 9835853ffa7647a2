"""The adapter's stream of events: how long it is waited for, how it ends."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import pytest

from nodeagent.runtime import base
from nodeagent.runtime.cri import CriRuntime
from orch.component.process import loops
from tests.fakes.cri_server import CriServer

SANDBOX = base.SandboxSpec(name="web", namespace="shop", uid="u1")


async def next_event(runtime: CriRuntime) -> base.ContainerEvent:
    async with contextlib.aclosing(runtime.events()) as events:
        return await anext(events)


async def listener(server: CriServer, runtime: CriRuntime) -> asyncio.Task[base.ContainerEvent]:
    waiting = loops.spawn(next_event(runtime), name="listening")
    async with asyncio.timeout(30):
        while not server.runtime.listeners:
            await asyncio.sleep(0.01)
    return waiting


async def test_events_are_waited_for_without_a_deadline(
    server: CriServer, runtime: CriRuntime
) -> None:
    waiting = await listener(server, runtime)
    sandbox_id = await runtime.run_sandbox(SANDBOX)

    assert (await waiting).id == sandbox_id
    assert next(left for method, _, left in server.requests if method == "GetContainerEvents") in (
        None,
        pytest.approx(float("inf")),
    )


async def test_a_runtime_without_events_is_reported_at_once(
    server: CriServer, runtime: CriRuntime
) -> None:
    refusals = [
        (grpc.StatusCode.UNIMPLEMENTED, "unknown method GetContainerEvents"),
        (grpc.StatusCode.UNKNOWN, "GetContainerEvents is not supported"),
    ]
    for code, details in refusals:
        server.refuse("GetContainerEvents", code, details)
        with pytest.raises(base.RuntimeNotSupported):
            await next_event(runtime)


async def test_a_runtime_that_dies_ends_the_events(server: CriServer, runtime: CriRuntime) -> None:
    waiting = await listener(server, runtime)
    await server.stop()

    with pytest.raises(base.RuntimeCallError):
        await waiting


async def test_an_event_that_cannot_be_decoded_ends_the_events(
    server: CriServer, runtime: CriRuntime
) -> None:
    waiting = await listener(server, runtime)
    server.garble("GetContainerEvents")
    await runtime.run_sandbox(SANDBOX)

    with pytest.raises(base.RuntimeCallError, match="the answer is no message"):
        await waiting


async def test_closing_the_runtime_ends_the_events(server: CriServer, runtime: CriRuntime) -> None:
    waiting = await listener(server, runtime)
    await runtime.close()

    with pytest.raises(base.RuntimeUnavailable, match="was closed"):
        await waiting


async def test_closing_the_events_stops_the_stream(server: CriServer, runtime: CriRuntime) -> None:
    waiting = await listener(server, runtime)
    await loops.cancel(waiting)

    async with asyncio.timeout(30):
        while server.runtime.listeners:
            await asyncio.sleep(0.01)
    assert await runtime.version()
