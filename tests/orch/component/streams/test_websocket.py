"""A WebSocket as its server has it: what is agreed upon, what is too much, and when it is idle."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, web

from orch.component.process import loops
from orch.component.streams import websocket
from orch.component.streams.websocket import ClientSocket, Message
from tests.orch.component.streams import door

UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket"}


@contextlib.asynccontextmanager
async def talking(
    serve: Callable[[ClientSocket], Awaitable[None]], *protocols: str, autoping: bool = True
) -> AsyncIterator[ClientWebSocketResponse]:
    """A client's socket, before a server that knows the protocols `new`, `old` and none."""

    async def handle(request: web.Request) -> web.StreamResponse:
        socket = await websocket.accept(request, ("old", "new", ""))
        await serve(socket)
        return socket.response

    async with (
        door.served(handle) as url,
        door.connected(url, *protocols, autoping=autoping) as socket,
    ):
        yield socket


async def echo(socket: ClientSocket) -> None:
    while (message := await socket.receive()) is not None:
        await socket.send(message.data, is_text=message.is_text)


@pytest.mark.parametrize(
    ("protocols", "agreed"),
    [(("new", "old"), "new"), (("odd", "old", "new"), "old"), ((), None)],
)
async def test_the_client_s_first_known_protocol_is_spoken(
    protocols: tuple[str, ...], agreed: str | None
) -> None:
    async with talking(echo, *protocols) as socket:
        assert socket.protocol == agreed
        assert "Server" not in socket._response.headers


async def test_messages_pass_whole_and_keep_their_kind() -> None:
    large = bytes(range(256)) * 4096
    async with talking(echo) as socket:
        await socket.send_str("häl\0lo")
        await socket.send_bytes(large)

        assert (await socket.receive(30)).data == "häl\0lo"
        assert (await socket.receive(30)).data == large


async def test_an_endless_message_is_refused_by_its_size() -> None:
    received: list[Message | None] = []

    async def take(socket: ClientSocket) -> None:
        received.append(await socket.receive())

    async with talking(take) as socket:
        with contextlib.suppress(ConnectionError):
            await socket.send_bytes(bytes(websocket.MAX_MESSAGE_BYTES + 1))

        closed = await socket.receive(30)
        assert (closed.type, closed.data) == (WSMsgType.CLOSE, 1009)
    assert received == [None]


@contextlib.asynccontextmanager
async def counted_turns() -> AsyncIterator[Callable[[], int]]:
    """In which turn of the event loop it is."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = loops.spawn(count(), name="turns")
    yield lambda: turns
    await loops.cancel(counting)


async def test_what_a_client_sends_in_tiny_messages_leaves_turns_to_others() -> None:
    sent = asyncio.Event()
    in_turn = list[int]()

    async def take(socket: ClientSocket) -> None:
        await sent.wait()
        async with counted_turns() as turn:
            while await socket.receive() is not None:
                in_turn.append(turn())

    async with talking(take, autoping=False) as socket:
        for _ in range(1000):
            await socket.send_bytes(b"x")
            await socket.ping()
        sent.set()
        pongs = 0
        while pongs < 1000:
            pongs += (await socket.receive(30)).type is WSMsgType.PONG
    assert len(in_turn) == 1000
    assert max(Counter(in_turn).values()) <= websocket.MESSAGES_PER_TURN


async def test_what_a_server_sends_in_tiny_messages_leaves_turns_to_others() -> None:
    """A program that writes single bytes: sixty of them took 600 ms of a turn."""
    in_turn = list[int]()

    async def give(socket: ClientSocket) -> None:
        async with counted_turns() as turn:
            for _ in range(1000):
                await socket.send(b"x")
                in_turn.append(turn())

    async with talking(give) as socket:
        for _ in range(1000):
            assert (await socket.receive(30)).data == b"x"
    assert max(Counter(in_turn).values()) <= 2 * websocket.MESSAGES_PER_TURN


async def test_few_messages_wait_for_who_does_not_receive() -> None:
    """There were 4,096 of each connection, through which garbage collection took 150 ms."""
    over = asyncio.Event()

    async def wait(_: ClientSocket) -> None:
        await over.wait()

    most = 0
    async with talking(wait) as socket:
        for _ in range(3000):
            await socket.send_bytes(b"")
        for _ in range(20):
            await asyncio.sleep(0.01)
            most = max(most, sum(type(one) is aiohttp.WSMessage for one in gc.get_objects()))
        over.set()
    assert 0 < most < 300


async def test_a_client_is_told_why_its_socket_is_closed() -> None:
    async def close(socket: ClientSocket) -> None:
        await socket.close(1011, "ä" * 100)

    async with talking(close) as socket:
        closed = await socket.receive(30)
        assert (closed.data, closed.extra) == (1011, "ä" * 61)  # what a closing frame holds


async def test_messages_either_way_put_off_the_idle_end() -> None:
    idle = asyncio.Event()

    async def watch(socket: ClientSocket) -> None:
        async def wait() -> None:
            await socket.wait_idle(0.4)
            idle.set()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(wait())
            echoing = tasks.create_task(echo(socket))
            await idle.wait()
            echoing.cancel()

    async with talking(watch) as socket:
        for _ in range(8):
            await socket.send_bytes(b"x")
            await socket.receive(30)
            assert not idle.is_set()
            await asyncio.sleep(0.1)
        await asyncio.wait_for(idle.wait(), 30)


async def test_a_client_of_no_known_protocol_is_refused_with_the_names_of_all() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return (await websocket.accept(request, ("old", ""))).response

    async with door.served(handle) as url, aiohttp.ClientSession() as client:
        names = {"Sec-WebSocket-Protocol": "v9, chat"}
        async with client.get(url, headers={**UPGRADE, **names}) as answer:
            said = await answer.json()
            assert (answer.status, said["reason"]) == (400, "BadRequest")
            assert said["message"].endswith("the client speaks v9, chat; supported: none, old")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        UPGRADE,
        {**UPGRADE, "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "short"},
        {**UPGRADE, "Sec-WebSocket-Version": "1", "Sec-WebSocket-Key": "A" * 22 + "=="},
    ],
)
async def test_a_request_that_opens_no_websocket_is_refused(headers: dict[str, str]) -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        return (await websocket.accept(request, ("",))).response

    async with (
        door.served(handle) as url,
        aiohttp.ClientSession() as client,
        client.get(url, headers=headers) as answer,
    ):
        assert answer.status == 400
        assert "the request opens no WebSocket" in (await answer.json())["message"]
