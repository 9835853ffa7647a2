"""Checks the health of a server by gRPC (grpc.health.v1.Health/Check)."""

from __future__ import annotations

from typing import Any

from nodeagent.pods.prober import grpc_health_pb2 as pb
from orch.component.grpc_channel import CallFailed, Channel

_OPTIONS = (
    ("grpc.primary_user_agent", "orch-probe/1.35"),
    ("grpc.max_receive_message_length", 16 * 1024),  # a number is enough
)


async def check(host: str, port: int, service: str, timeout_s: float) -> str:
    """Why the server is unhealthy; "" when it is healthy."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    channel = Channel(address, _stubs, options=_OPTIONS)
    try:
        answer = await channel.call("Check", pb.HealthCheckRequest(service=service), timeout_s)
    except CallFailed as failure:
        return _problem(failure, address, timeout_s)
    finally:
        await channel.close()
    if answer.status == answer.SERVING:
        return ""
    known = answer.ServingStatus.DESCRIPTOR.values_by_number.get(answer.status)
    return f'service unhealthy (responded with "{known.name if known else answer.status}")'


def _stubs(channel: Any) -> tuple[Any, ...]:
    from nodeagent.pods.prober import grpc_health_pb2_grpc as rpc  # loads grpc

    return (rpc.HealthStub(channel),)


def _problem(failure: CallFailed, address: str, timeout_s: float) -> str:
    match failure.code:
        case "UNIMPLEMENTED":
            return "the server does not implement the health protocol (grpc.health.v1.Health)"
        case "DEADLINE_EXCEEDED":
            return f"no answer from {address} within {timeout_s:g} s"
        case "UNAVAILABLE":
            return f"cannot connect to {address}"
    return f"rpc error: code = {failure.code} desc = {failure.details}"
