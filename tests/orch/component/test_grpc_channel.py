"""Calls of a real gRPC server on loopback, and what fails about them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from orch.component.grpc_channel import CLOSED, CallFailed, Channel, observed


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers what it is sent, but for the words it knows."""

    def service(self, details: Any) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            if request == b"refuse":
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
            if request == b"wait":
                await asyncio.sleep(10)
            return request

        return grpc.unary_unary_rpc_method_handler(answer)


class Stub:
    def __init__(self, channel: Any) -> None:
        self.Echo = channel.unary_unary("/test.Echo/Echo")


def to(address: str) -> Channel:
    return Channel(address, lambda channel: [Stub(channel)])


@pytest_asyncio.fixture
async def channel() -> AsyncIterator[Channel]:
    server = grpc.aio.server(handlers=[Echo()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    made = to(f"127.0.0.1:{port}")
    yield made
    await made.close()
    await server.stop(None)


async def failure_of(call: Any) -> tuple[str, str]:
    with pytest.raises(CallFailed) as caught:
        await call
    return caught.value.code, caught.value.details


async def test_a_call_is_answered(channel: Channel) -> None:
    assert await channel.call("Echo", b"hello", 5) == b"hello"


async def test_a_failed_call_has_the_status_codes_name_and_the_servers_words(
    channel: Channel,
) -> None:
    assert await failure_of(channel.call("Echo", b"refuse", 5)) == ("NOT_FOUND", "no such thing")
    assert (await failure_of(channel.call("Echo", b"wait", 0.05)))[0] == "DEADLINE_EXCEEDED"
    nobody = to("127.0.0.1:1")
    assert (await failure_of(nobody.call("Echo", b"", 5)))[0] == "UNAVAILABLE"
    await nobody.close()


async def test_closing_ends_calls_under_way_and_later_ones(channel: Channel) -> None:
    waiting = asyncio.create_task(channel.call("Echo", b"wait", 5))
    await channel.call("Echo", b"the other is sent", 5)
    await channel.close()
    assert (await failure_of(waiting))[0] == CLOSED
    assert (await failure_of(channel.call("Echo", b"", 5)))[0] == CLOSED


async def test_a_cancelled_caller_gets_no_failure(channel: Channel) -> None:
    waiting = asyncio.create_task(channel.call("Echo", b"wait", 5))
    await channel.call("Echo", b"the other is sent", 5)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_is_observed_ends_well_or_fails() -> None:
    told: list[tuple[str, bool]] = []
    for problem in (None, ValueError("x")):
        try:
            with observed(lambda name, _, failed: told.append((name, failed)), "look"):
                if problem:
                    raise problem
        except ValueError:
            pass
    assert told == [("look", False), ("look", True)]


@pytest.mark.slow
def test_no_program_loads_grpc_before_it_makes_a_channel() -> None:
    programs = "nodeagent.main, orch.server.main, orch.ctl.main"
    code = f"import sys, {programs}; sys.exit('grpc' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
