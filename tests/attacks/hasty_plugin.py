"""A device plugin whose list changes without pause: its devices are healthy, then not, and so on.

    python -m tests.attacks.hasty_plugin FOLDER RESOURCE DEVICES

It prints `listing` when its first list was asked for.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from itertools import cycle
from typing import Any

import grpc

from nodeagent.pods.devices import deviceplugin_pb2 as pb


class Hasty(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Its lists are encoded once, so that nothing holds it up."""

    def __init__(self, count: int) -> None:
        self._lists = [
            pb.ListAndWatchResponse(
                devices=[pb.Device(ID=f"{n}".rjust(200, "x"), health=health) for n in range(count)]
            ).SerializeToString()
            for health in ("Healthy", "Unhealthy")
        ]

    def service(self, details: Any) -> Any:
        if details.method.endswith("ListAndWatch"):
            return grpc.unary_stream_rpc_method_handler(self._list)
        return grpc.unary_unary_rpc_method_handler(self._options)

    async def _options(self, _request: bytes, _context: Any) -> bytes:
        return b""

    async def _list(self, _request: bytes, _context: Any) -> AsyncIterator[bytes]:
        print("listing", flush=True)
        for encoded in cycle(self._lists):
            yield encoded


async def main() -> None:
    folder, resource, count = sys.argv[1:]
    endpoint = f"{os.getpid()}.sock"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Hasty(int(count)),))
    server.add_insecure_port(f"unix:{folder}/{endpoint}")
    await server.start()
    request = pb.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
    async with grpc.aio.insecure_channel(f"unix:{folder}/kubelet.sock") as channel:
        register = channel.unary_unary("/v1beta1.Registration/Register")
        await register(request.SerializeToString(), timeout=60)
    await server.wait_for_termination()


if __name__ == "__main__":
    os.nice(15)  # as `flood.py`
    asyncio.run(main())
