import asyncio
import contextlib
import os
import resource
import socket
import ssl
from asyncio.trsock import TransportSocket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orch.component.http import tcp
from orch.component.http.httpd import server_context
from orch.component.pki import Authority, Subject
from orch.component.process import clock


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_dead_peer_is_noticed_within_about_a_minute(family: socket.AddressFamily) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as connection:
        tcp.notice_dead_peer(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, probes, unacknowledged_ms = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                socket.TCP_USER_TIMEOUT,
            )
        )
        assert idle + interval * probes == 60
        assert unacknowledged_ms == 60_000


def test_sockets_that_are_not_tcp_are_left() -> None:
    one, other = socket.socketpair()
    with one, other:
        tcp.notice_dead_peer(one)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


def test_a_peer_may_be_allowed_to_pause_until_its_connection_is_closed() -> None:
    plain = socket.socket()
    connection = TransportSocket(plain)
    for limited, timeout_ms in ((True, 60_000), (False, 0), (True, 60_000)):
        tcp.limit_unacknowledged(connection, limited=limited)
        found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert found == timeout_ms
    plain.close()
    tcp.limit_unacknowledged(connection, limited=False)


@pytest.mark.parametrize("cut", [tcp.abort, tcp.reset])
async def test_tls_that_was_closed_can_be_cut(
    tmp_path: Path, cut: Callable[[asyncio.WriteTransport | None], None]
) -> None:
    authority = Authority(tmp_path, now=clock.utc_now())
    pair = authority.issue(Subject("server", "server", (), ("localhost",)))
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    serving = await asyncio.start_server(
        lambda _, writer: accepted.put_nowait(writer),
        "127.0.0.1",
        ssl=server_context(pair.cert_file, pair.key_file, client_ca_file=None),
    )
    trusting = ssl.create_default_context(cafile=authority.ca_file)
    async with serving:
        for closed in range(3):
            reader, writer = await asyncio.open_connection(
                "localhost", serving.sockets[0].getsockname()[1], ssl=trusting
            )
            transport = (await accepted.get()).transport
            for _ in range(closed):
                transport.close()
            cut(transport)
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
    cut(None)


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(2))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def listening() -> Iterator[tcp.ListeningSocket]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        listening = tcp.ListeningSocket("the agent", fileno=os.dup(bound.fileno()))
    listening.setblocking(False)
    with listening:
        yield listening


def test_without_a_descriptor_connections_are_refused_and_said_once_then_accepted_again(
    listening: tcp.ListeningSocket,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    clients = [socket.socket() for _ in range(20)]
    for client in clients:
        client.connect(listening.getsockname())
    open_before = len(os.listdir("/proc/self/fd"))
    with no_descriptor_left():
        for _ in clients:
            with pytest.raises(BlockingIOError):
                listening.accept()
        for client in clients:  # told at once, instead of waiting for nothing
            assert client.recv(1) == b""
    for client in clients:
        client.close()
    assert len(os.listdir("/proc/self/fd")) <= open_before - len(clients)
    text = "the agent refuses connections: Too many open files; raise the limit of open files"
    assert caplog.messages == [text]
    monkeypatch.setattr(tcp, "QUIET_S", -1.0)
    with socket.create_connection(listening.getsockname()), listening.accept()[0]:
        assert caplog.messages[1].startswith("the agent accepts connections again")


def test_what_else_goes_wrong_with_accepting_is_left_to_the_event_loop(
    listening: tcp.ListeningSocket,
) -> None:
    with pytest.raises(BlockingIOError):
        listening.accept()
    listening.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        listening.accept()


def test_a_short_socket_gives_little_at_once_and_ends() -> None:
    """Neither to a reader of bytes nor to TLS, which reads into a buffer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        family, address = listener.family, listener.getsockname()
        with tcp.ShortSocket.of((family, socket.SOCK_STREAM, 0, "", address)) as client:
            client.setblocking(True)
            client.connect(address)
            with listener.accept()[0] as server:
                server.sendall(bytes(tcp.ShortSocket.MOST_BYTES + 1))
                buffer, got = bytearray(1 << 20), list[int]()
                while received := client.recv_into(buffer) + len(client.recv(1 << 20)):
                    got.append(received)
    assert sum(got) == tcp.ShortSocket.MOST_BYTES
    assert max(got) <= 2 * 8 * 1024
