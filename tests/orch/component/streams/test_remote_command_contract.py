"""Commands through every sub-protocol, to the fake streaming server and to containerd's own."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import grpc
import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, web

from nodeagent.runtime import base
from nodeagent.runtime.cri import CriRuntime
from orch.component.streams import remote_command, tunnel, websocket
from orch.component.streams.remote_command import PROTOCOLS, Channel, Wanted
from orch.component.streams.spdy_connection import SpdyConnection
from tests.conftest_runtime import RealRuntime, remove_pod_cgroups
from tests.fakes.stream_server import stream_server
from tests.orch.component.streams import door

ECHO_PORT = "8007"
ECHO = ("nc", "-ll", "-p", ECHO_PORT, "-e", "cat")
LISTENS = ("sh", "-c", f"until netstat -ltn | grep -q :{ECHO_PORT}; do sleep 0.05; done")
ECHOING = base.ContainerSpec("app", 0, "localhost/busybox:1", command=ECHO)
Dial = Callable[[Sequence[str], Wanted], AbstractAsyncContextManager[str]]


@contextlib.asynccontextmanager
async def fake_url(command: Sequence[str], wanted: Wanted) -> AsyncIterator[str]:
    types = {channel.name.lower() for channel in wanted.channels()}
    async with stream_server(command, types) as port:
        yield f"http://127.0.0.1:{port}/exec"


def message(*fields: tuple[int, bytes | int]) -> bytes:
    """A message of protocol buffers with short fields, bytes or numbers."""
    parts = (
        bytes((number << 3, value))
        if isinstance(value, int)
        else bytes((number << 3 | 2, len(value))) + value
        for number, value in fields
    )
    return b"".join(parts)


async def asked(endpoint: str, method: str, request: bytes) -> str:
    """The URL that the runtime answers: field 1 of the answer."""
    async with grpc.aio.insecure_channel(endpoint) as channel:
        answer = await channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")(request)
    assert answer[0] == 0x0A and answer[1] == len(answer) - 2
    return str(answer[2:].decode())


@pytest.fixture
async def container(real_runtime: RealRuntime) -> AsyncIterator[tuple[str, str]]:
    """A sandbox and a container in it that echoes what comes to its port."""
    runtime, uid = CriRuntime(real_runtime.endpoint), str(uuid.uuid4())
    parent = f"/orchpods/pod{uid}"
    sandbox = base.SandboxSpec("web", "streams", uid, cgroup_parent=parent)
    sandbox_id = await runtime.run_sandbox(sandbox)
    container_id = await runtime.create_container(sandbox_id, ECHOING, sandbox)
    await runtime.start_container(container_id)
    await runtime.exec_sync(container_id, LISTENS, timeout_s=30)
    yield sandbox_id, container_id
    await runtime.stop_sandbox(sandbox_id)
    await runtime.remove_sandbox(sandbox_id)
    await runtime.close()
    await asyncio.to_thread(remove_pod_cgroups, parent)


@pytest.fixture(params=["fake", pytest.param("containerd", marks=pytest.mark.real)])
def dial(request: pytest.FixtureRequest) -> Dial:
    """Makes the URL at which a command waits for its streams."""
    if request.param == "fake":
        return fake_url
    real: RealRuntime = request.getfixturevalue("real_runtime")
    _, container_id = request.getfixturevalue("container")

    @contextlib.asynccontextmanager
    async def real_url(command: Sequence[str], wanted: Wanted) -> AsyncIterator[str]:
        asked_for = (wanted.tty, wanted.stdin, wanted.stdout, wanted.stderr and not wanted.tty)
        flags = tuple((number, int(flag)) for number, flag in enumerate(asked_for, 3))
        words = tuple((2, word.encode()) for word in command)
        exec_request = message((1, container_id.encode()), *words, *flags)
        yield await asked(real.endpoint, "Exec", exec_request)

    return real_url


@dataclass
class Told:
    """What a client was told, by channel, and the code that closed its socket."""

    channels: dict[int, bytes] = field(default_factory=dict)
    close_code: int | None = None

    @property
    def status(self) -> dict[str, object]:
        status: dict[str, object] = json.loads(self.channels[Channel.ERROR])
        return status


class Client:
    """Speaks one sub-protocol over a WebSocket."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket
        self._is_base64 = PROTOCOLS[socket.protocol or ""].is_base64

    async def send(self, channel: int, data: bytes) -> None:
        if self._is_base64:
            await self.socket.send_str(f"{channel}{base64.b64encode(data).decode()}")
        else:
            await self.socket.send_bytes(bytes((channel,)) + data)

    async def close_stdin(self) -> None:
        await self.socket.send_bytes(b"\xff\x00")

    async def told(self) -> Told:
        """Everything, to the end."""
        told = Told()
        while (received := await self.socket.receive(60)).type in (
            WSMsgType.BINARY,
            WSMsgType.TEXT,
        ):
            channel, data = self.parsed(received.data)
            told.channels[channel] = told.channels.get(channel, b"") + data
        told.close_code = self.socket.close_code
        return told

    def parsed(self, data: bytes | str) -> tuple[int, bytes]:
        if isinstance(data, str):
            assert self._is_base64
            return int(data[0]), base64.b64decode(data[1:], validate=True)
        return data[0], data[1:]


@contextlib.asynccontextmanager
async def client(dial: Dial, protocol: str, wanted: Wanted, *command: str) -> AsyncIterator[Client]:
    async def handle(request: web.Request) -> web.StreamResponse:
        socket = await websocket.accept(request, PROTOCOLS)
        upstream = await door.upgraded(url, remote_command.UPSTREAM_PROTOCOL)
        await remote_command.translate(socket, upstream, wanted, idle_timeout_s=60)
        return socket.response

    async with (
        dial(command, wanted) as url,
        door.served(handle) as here,
        door.connected(here, *filter(None, [protocol])) as socket,
    ):
        yield Client(socket)


BOTH = Wanted(stdin=True, stdout=True, stderr=True)
OUTPUT = Wanted(stdout=True, stderr=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_command_s_outputs_and_success_are_told(dial: Dial, protocol: str) -> None:
    speech = ("sh", "-c", "echo out; echo err >&2")
    async with client(dial, protocol, OUTPUT, *speech) as one:
        told = await one.told()

    assert told.channels[Channel.STDOUT] == b"out\n"
    assert told.channels[Channel.STDERR] == b"err\n"
    assert told.close_code == 1000
    if PROTOCOLS[protocol].has_status:
        assert told.status["status"] == "Success"
    else:
        assert Channel.ERROR not in told.channels


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_an_exit_code_is_told(dial: Dial, protocol: str) -> None:
    async with client(dial, protocol, OUTPUT, "sh", "-c", "exit 3") as one:
        told = await one.told()

    if PROTOCOLS[protocol].has_status:
        assert told.status["reason"] == "NonZeroExitCode"
        assert told.status["details"] == {"causes": [{"reason": "ExitCode", "message": "3"}]}
    else:
        assert b"exit code" in told.channels[Channel.ERROR]


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.base64.channel.k8s.io"])
@pytest.mark.parametrize("piece", [64 * 1024, 1024 * 1024])
async def test_a_mebibyte_comes_back_whole(dial: Dial, protocol: str, piece: int) -> None:
    sent = bytes(range(256)) * 4096
    async with client(dial, protocol, BOTH, "head", "-c", str(len(sent))) as one:
        told = asyncio.create_task(one.told())
        for start in range(0, len(sent), piece):
            await one.send(Channel.STDIN, sent[start : start + piece])
        channels = (await told).channels

    assert channels[Channel.STDOUT] == sent


async def test_a_closed_input_ends_and_its_command_goes_on(dial: Dial) -> None:
    async with client(dial, "v5.channel.k8s.io", BOTH, "sh", "-c", "wc -c; echo after") as one:
        await one.send(Channel.STDIN, b"x" * 1000)
        await one.close_stdin()
        told = await one.told()

    assert told.channels[Channel.STDOUT].split() == [b"1000", b"after"]
    assert told.status["status"] == "Success"


async def test_a_terminal_has_the_client_s_size(dial: Dial) -> None:
    terminal = Wanted(stdin=True, stdout=True, stderr=True, tty=True)
    # Nothing says which comes first at the runtime, the size or the line.
    script = "read line; until stty size 2>/dev/null | grep 120; do sleep 0.05; done; exit 4"
    async with client(dial, "v5.channel.k8s.io", terminal, "sh", "-c", script) as one:
        await one.send(Channel.RESIZE, b'{"Width":120,"Height":40}\n')
        await one.send(Channel.STDIN, b"go\n")
        told = await one.told()

    assert told.channels[Channel.STDOUT].splitlines()[-1] == b"40 120"
    assert Channel.STDERR not in told.channels
    assert told.status["reason"] == "NonZeroExitCode"


class Tunnelled:
    """The streams of a client whose bytes go through a WebSocket."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._written = b""
        self.transport = self

    async def read(self, size: int, /) -> bytes:
        received = await self._socket.receive(60)
        return received.data if received.type is WSMsgType.BINARY else b""

    def write(self, data: bytes, /) -> None:
        self._written += data

    async def drain(self) -> None:
        written, self._written = self._written, b""
        await self._socket.send_bytes(written)

    def get_write_buffer_size(self) -> int:
        return len(self._written)


@pytest.mark.real
async def test_a_tunnel_carries_a_connection_to_a_port_of_a_pod(
    real_runtime: RealRuntime, container: tuple[str, str]
) -> None:
    forward = message((1, container[0].encode()))
    sent = bytes(range(256)) * 4096

    async def handle(request: web.Request) -> web.StreamResponse:
        socket = await websocket.accept(request, tunnel.PROTOCOLS)
        url = await asked(real_runtime.endpoint, "PortForward", forward)
        upstream = await door.upgraded(url, tunnel.UPSTREAM_PROTOCOL)
        await tunnel.tunnel(socket, upstream, idle_timeout_s=60)
        return socket.response

    async with door.served(handle) as here, door.connected(here, *tunnel.PROTOCOLS) as socket:
        there = Tunnelled(socket)
        connection = SpdyConnection(there, there)  # type: ignore[arg-type]
        port = (("port", ECHO_PORT), ("requestid", "0"))
        streams = [(("streamtype", kind), *port) for kind in ("error", "data")]
        error, data = await connection.open(*streams)
        writing = asyncio.create_task(connection.write(data, sent))
        echoed = bytearray()
        while len(echoed) < len(sent):
            received = await connection.receive()
            assert received is not None and received.stream_id == data
            echoed += received.data
        await writing
        await connection.finish(data)
        ended = set()
        while ended != {error, data}:
            received = await connection.receive()
            assert received is not None and received.data == b""
            ended |= {received.stream_id} if received.is_end else set()

    assert bytes(echoed) == sent
