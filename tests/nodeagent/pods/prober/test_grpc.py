"""Health checks of real gRPC servers on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
import pytest_asyncio

from nodeagent.pods.prober import grpc as prober_grpc
from nodeagent.pods.prober.probes import Prober, ProbeTarget
from orch.wire.records.handlers import Probe
from orch.wire.records.pods import Container
from tests.fakes.runtime import FakeRuntime

LONG = "x" * 300


class Health(grpc.GenericRpcHandler):
    """Answers by the service asked for; `answer` None: not implemented at all."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def service(self, details: Any) -> Any:
        if details.method != "/grpc.health.v1.Health/Check":
            return None

        async def check(request: bytes, context: Any) -> bytes:
            self.asked.append(request)
            match request[-3:]:
                case b"bad":
                    return b"\x08\x02"
                case b"bin":
                    return b"\xff"
                case b"uge":
                    return b"\x08\x01\x12\xa0\x9c\x01" + bytes(20_000)
                case b"odd":
                    return b"\x12\x01x"
                case b"low":
                    await asyncio.sleep(5)
                case b"one":
                    await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
            return b"\x08\x01"

        return grpc.unary_unary_rpc_method_handler(check)


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    server = grpc.aio.server(handlers=[Health()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield port
    await server.stop(None)


CASES = [
    ("", ""),
    (LONG, ""),
    ("bad", 'service unhealthy (responded with "NOT_SERVING")'),
    ("odd", 'service unhealthy (responded with "UNKNOWN")'),
    ("slow", "no answer from 127.0.0.1"),
    ("bin", "rpc error: code = INTERNAL desc = the answer is no message of the type"),
    ("huge", "rpc error: code = RESOURCE_EXHAUSTED desc = "),
    ("none", "rpc error: code = NOT_FOUND desc = unknown service"),
]


@pytest.mark.parametrize(("service", "problem"), CASES)
async def test_a_server_says_whether_it_is_well(port: int, service: str, problem: str) -> None:
    found = await prober_grpc.check("127.0.0.1", port, service, 0.5)
    assert found.startswith(problem)
    assert bool(found) is bool(problem)


async def test_a_server_without_the_protocol_and_none_at_all_are_told_apart() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    assert "does not implement" in await prober_grpc.check("127.0.0.1", port, "", 2)
    await server.stop(None)
    assert f"cannot connect to 127.0.0.1:{port}" in await prober_grpc.check(
        "127.0.0.1", port, "", 2
    )


@pytest.mark.parametrize(("service", "good"), [(None, True), ("bad", False)])
async def test_a_probe_can_be_grpc(port: int, service: str | None, good: bool) -> None:
    prober = Prober(FakeRuntime())
    probe = Probe.from_wire({"grpc": {"port": port, "service": service}})
    outcome = await prober.check(ProbeTarget("c", Container(name="c"), "127.0.0.1"), probe)
    assert outcome.good is good
