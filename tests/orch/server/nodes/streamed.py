"""Streams through an API server: where their agent is, and clients that ask for them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from tests.fakes.streaming import ASK, Upgraded, upgraded
from tests.orch.server.harness import MERGE, NODES, Api


async def placed(api: Api, port: int) -> None:
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"nodeagentEndpoint": {"Port": port}},
    }
    await api.call("PATCH", f"{NODES}/n1/status", {"status": status}, content_type=MERGE)


def asked(api: Api, first: str, user: str = "admin") -> AbstractAsyncContextManager[Upgraded]:
    context = ssl.create_default_context(cafile=api.pki.ca_file)
    pair = api.pki.users[user]
    context.load_cert_chain(pair.cert_file, pair.key_file)
    return upgraded(api.port, first, (*ASK, "X-Stream-Protocol-Version: v4"), tls=context)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.01)
