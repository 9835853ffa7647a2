from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest
from aiohttp.resolver import ThreadedResolver

from orch.client.resolver import MAX_CONCURRENT, Resolver


async def test_it_finds_what_the_librarys_own_resolver_finds() -> None:
    for family in (socket.AF_INET, socket.AF_UNSPEC):
        found = await Resolver().resolve("localhost", 443, family)
        assert found == await ThreadedResolver().resolve("localhost", 443, family)


async def test_the_scope_of_a_local_address_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    row = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 443, 0, 1))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: [row])
    (found,) = await Resolver().resolve("near.example", 443, socket.AF_UNSPEC)
    assert (found["host"], found["port"]) == ("fe80::1%lo", 443)


@pytest.mark.parametrize("name", ["nothing.invalid", "no..name", "x" * 64])
async def test_an_unknown_name_is_an_error_of_the_system(name: str) -> None:
    with pytest.raises(socket.gaierror):
        await Resolver().resolve(name, 443)


async def test_a_name_that_hangs_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    released, asked = threading.Event(), []

    def hang(*name: Any, **_options: int) -> list[object]:
        asked.append(name)
        assert released.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    resolver = Resolver()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await resolver.resolve("slow.example", 443)
    last = asyncio.ensure_future(resolver.resolve("slow.example", 443))
    released.set()
    assert await last == []
    assert len(asked) == 1


async def test_a_resolver_that_hangs_holds_few_threads_and_refuses_further_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: released.wait(30) and [])
    resolver = Resolver()
    waiting = [
        asyncio.ensure_future(resolver.resolve(f"host-{n}.example")) for n in range(MAX_CONCURRENT)
    ]
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="the resolver does not answer"):
        await resolver.resolve("one-more.example")
    released.set()
    assert await asyncio.gather(*waiting) == [[]] * MAX_CONCURRENT
    assert await resolver.resolve("one-more.example") == []
