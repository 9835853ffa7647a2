"""Servers on Unix sockets: who may connect, what is refused, what is bounded."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest

from orch.component import grpc_server
from orch.component.grpc_channel import CallFailed, Channel
from orch.component.grpc_server import CALLS_MAX, Refused, UnixServer


class Words(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers what it is sent, but for the words it knows."""

    def __init__(self) -> None:
        self.busy = self.most = 0

    def service(self, details: Any) -> Any:
        async def answer(request: bytes, context: Any) -> Any:
            return await grpc_server.answer(context, self._say(request), limit_s=0.5)

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _say(self, request: bytes) -> bytes:
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            if request == b"refuse":
                raise Refused("NOT_FOUND", "no such word")
            if request == b"wait":
                await asyncio.sleep(10)
            return request
        finally:
            self.busy -= 1


class Stub:
    def __init__(self, channel: Any) -> None:
        self.Say = channel.unary_unary("/test.Words/Say")


def serving(path: Path, words: Words | None = None) -> UnixServer:
    handler = words or Words()
    return UnixServer(
        path, lambda server: server.add_generic_rpc_handlers((handler,)), message_bytes=1000
    )


def to(path: Path) -> Channel:
    return Channel(f"unix:{path}", lambda channel: [Stub(channel)])


async def test_calls_are_answered_refused_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "words.sock"
    server = serving(path)
    await server.start()
    channel = to(path)
    assert await channel.call("Say", b"hello", 5) == b"hello"
    for word, code, text in (
        (b"refuse", "NOT_FOUND", "no such word"),
        (b"wait", "DEADLINE_EXCEEDED", "there is no answer within 0.5 s"),
        (b"x" * 1001, "RESOURCE_EXHAUSTED", ""),
    ):
        with pytest.raises(CallFailed) as failed:
            await channel.call("Say", word, 5)
        assert failed.value.code == code and text in failed.value.details
    await channel.close()
    await server.stop()
    assert not path.exists()


@pytest.mark.slow
async def test_no_more_than_so_many_calls_are_worked_on(tmp_path: Path) -> None:
    path, words = tmp_path / "words.sock", Words()
    server = serving(path, words)
    await server.start()
    channel = to(path)
    calls = [channel.call("Say", b"wait", 5) for _ in range(3 * CALLS_MAX)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(one, CallFailed) for one in answers)
    assert words.most <= CALLS_MAX
    assert await channel.call("Say", b"hello", 5) == b"hello"
    await channel.close()
    await server.stop()


async def test_an_old_socket_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "words.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    server = serving(path)
    await server.start()
    await server.stop()
    for make in (path.write_bytes, lambda _: path.symlink_to("x"), lambda _: path.mkdir()):
        make(b"")
        with pytest.raises(FileExistsError, match="not a socket and is left alone"):
            await server.start()
        assert os.path.lexists(path)
        path.rmdir() if path.is_dir() else path.unlink()


async def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder").symlink_to("elsewhere")
    with pytest.raises(OSError, match="folder"):
        await serving(tmp_path / "folder" / "words.sock").start()
    assert not list((tmp_path / "elsewhere").iterdir())


async def test_a_server_whose_socket_cannot_be_restricted_serves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d" / "words.sock"
    server, actual = serving(path), os.chmod

    def refuse(*arguments: Any, **named: Any) -> None:
        if path.exists():
            raise PermissionError("not allowed")
        actual(*arguments, **named)

    with monkeypatch.context() as patched, pytest.raises(PermissionError):
        patched.setattr(os, "chmod", refuse)
        await server.start()
    assert server.folder == -1
    assert not path.exists()
    await server.start()
    try:
        assert path.exists()
    finally:
        await server.stop()


async def test_a_server_that_is_cancelled_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "words.sock"
    for turns in range(30):
        server = serving(path)
        starting = asyncio.ensure_future(server.start())
        while not path.exists():
            await asyncio.sleep(0)
        for _ in range(turns):
            await asyncio.sleep(0)
        if starting.done():
            await server.stop()
        else:
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        assert not path.exists()
