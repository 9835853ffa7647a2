"""Asks a server by gRPC whether it is well (grpc.health.v1.Health/Check).

The two messages are written and read here: a service's name as field 1, a status as field 1.
"""

from __future__ import annotations

import grpc

_METHOD = "/grpc.health.v1.Health/Check"
_NAME_FIELD = 0x0A  # field 1, with a length
_STATUS_FIELD = 0x08  # field 1, a number
_SERVING = 1
_STATUSES = {0: "UNKNOWN", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_OPTIONS = (("grpc.primary_user_agent", "orch-probe/1.35"), ("grpc.enable_http_proxy", 0))


async def check(host: str, port: int, service: str, timeout_s: float) -> str:
    """Why the server is not well; "" when it is."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
        try:
            answer: bytes = await channel.unary_unary(_METHOD)(_request(service), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return _failure(error, address, timeout_s)
    status = _status(answer)
    if status == _SERVING:
        return ""
    return f'service unhealthy (responded with "{_STATUSES.get(status, status)}")'


def _failure(error: grpc.aio.AioRpcError, address: str, timeout_s: float) -> str:
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return "the server does not implement the health protocol (grpc.health.v1.Health)"
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer from {address} within {timeout_s:g} s"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return f"cannot connect to {address}"
    return f"rpc error: code = {error.code().name} desc = {error.details()}"


def _request(service: str) -> bytes:
    name = service.encode()
    return bytes((_NAME_FIELD,)) + _varint(len(name)) + name if name else b""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _status(answer: bytes) -> int:
    """0, unknown, for an answer without a status or with another form."""
    if len(answer) < 2 or answer[0] != _STATUS_FIELD or answer[1] > 0x7F:
        return 0
    return answer[1]
