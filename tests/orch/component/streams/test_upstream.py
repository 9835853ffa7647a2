"""Answers of a server behind, and how far they are believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from multidict import CIMultiDict

from orch.component.streams import upstream
from orch.component.streams.upstream import Agreement, Destination, Refused, Unreachable, dial
from tests.fakes.streaming import AGREED, StreamingServer, streaming


@pytest.fixture
async def server() -> AsyncIterator[StreamingServer]:
    async with streaming() as server:
        yield server


async def dialled(server: StreamingServer, **headers: str) -> Agreement:
    asked = CIMultiDict({"Connection": "Upgrade", "Upgrade": "SPDY/3.1", **headers})
    return await dial(Destination("127.0.0.1", server.port), "POST", "/a?b=c", asked)


async def test_a_request_is_sent_as_it_is(server: StreamingServer) -> None:
    agreement = await dialled(server, Extra="x")
    agreement.transport.close()
    assert server.heads == [
        f"POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: Upgrade\r\n"
        "Upgrade: SPDY/3.1\r\nExtra: x\r\nContent-Length: 0\r\n\r\n".encode()
    ]


async def test_of_the_answer_only_what_an_upgrade_needs_is_passed_on(
    server: StreamingServer,
) -> None:
    server.answer = AGREED.replace(
        b"\r\n\r\n",
        b"\r\nSet-Cookie: a=b\r\nX-Stream-Protocol-Version: v4\r\nServer: s\r\n\r\n\x80early",
    )
    agreement = await dialled(server)
    agreement.transport.close()
    assert agreement.early == b"\x80early"
    assert dict(agreement.headers) == {
        "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": "v4", "Connection": "Upgrade",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone+more", "gone"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok"),
        (b"HTTP/1.1 503\r\n\r\nuntil it closes", "until it closes"),
        (b"HTTP/1.1 500 Odd\r\nContent-Length: x\r\n\r\n\xff", "\ufffd"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n", ""),
    ],
)
async def test_any_other_answer_is_a_refusal(
    server: StreamingServer, answer: bytes, text: str
) -> None:
    server.answer, server.talk = answer, _nothing
    with pytest.raises(Refused) as caught:
        await dialled(server)
    assert (caught.value.status, str(caught.value)) == (int(answer.split()[1]), text)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "it closed the connection without an answer"),
        (b"HTTP/1.1 101 S\r\nUpgrade", "it closed the connection without an answer"),
        (b"HTTP/1.0 101 S\r\n\r\n", "its answer is not HTTP/1.1"),
        (b"SSH-2.0-x\r\n\r\n", "its answer is not HTTP/1.1"),
        (b"HTTP/1.1 101 S\r\nno colon\r\n\r\n", "has a malformed header"),
        (b"HTTP/1.1 101 S\r\nA: b\r\n folded\r\n\r\n", "has a malformed header"),
        (b"HTTP/1.1 101 S\r\nUpgrade: SPDY/3.1\x00\r\n\r\n", "has a malformed header"),
        (b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\n\r\n", "it upgraded to ''"),
        (b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\n\r\n", "it upgraded to 'h2c', not to 'SPDY/3.1'"),
        (b"HTTP/1.1 101 S\r\nX: " + b"x" * 20_000, "has over 16384 bytes"),
    ],
)
async def test_an_answer_that_is_none_is_not_believed(
    server: StreamingServer, answer: bytes, why: str
) -> None:
    server.answer, server.talk = answer, _nothing
    with pytest.raises(Unreachable, match=why):
        await dialled(server)


async def test_a_long_refusal_is_read_to_a_bound(server: StreamingServer) -> None:
    async def endless(_: Any, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(bytes(65536))
            await writer.drain()

    server.answer, server.talk = b"HTTP/1.1 500 Long\r\n\r\n", endless
    with pytest.raises(Refused) as caught:
        await dialled(server)
    assert len(str(caught.value)) <= upstream.MAX_REFUSAL_BYTES


async def test_who_never_answers_is_left(
    server: StreamingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "ANSWER_TIMEOUT_S", 0.1)
    server.answer = b"HTTP/1.1 101"
    with pytest.raises(Unreachable, match="it did not answer within"):
        await dialled(server)
    async with asyncio.timeout(10):
        while server.open:
            await asyncio.sleep(0.01)


async def test_nobody_there(unused_tcp_port: int) -> None:
    with pytest.raises(Unreachable, match="Connect"):
        await dial(Destination("127.0.0.1", unused_tcp_port), "GET", "/", CIMultiDict(Upgrade="x"))


async def _nothing(_: asyncio.StreamReader, __: asyncio.StreamWriter) -> None:
    return None
