import asyncio
import asyncio.sslproto
import contextlib
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import http_parser, web

from orch.component import certificates
from orch.component.http import connection_limit, httpd
from orch.component.http.connection import Connection
from orch.component.http.httpd import HttpServer
from orch.component.process.daemon import SetupError
from orch.wire.errors import ApiError
from tests.conftest import Credentials, Pki

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def whoami(request: web.Request) -> web.Response:
    identity = httpd.current_peer(request)
    return web.json_response(identity and [identity.name, *identity.groups])


@asynccontextmanager
async def serving(
    handler: Handler,
    *,
    context: ssl.SSLContext | None = None,
    max_connections: int = 100,
    on_shutdown: Callable[[web.Application], Awaitable[None]] | None = None,
) -> AsyncIterator[tuple[HttpServer, int]]:
    app = web.Application(client_max_size=100, middlewares=[httpd.api_errors])
    app.router.add_route("*", "/", handler)
    if on_shutdown:
        app.on_shutdown.append(on_shutdown)
    server = HttpServer(
        app, host="127.0.0.1", port=0, ssl_context=context, name="test server",
        max_connections=max_connections,
    )  # fmt: skip
    port = await server.start()
    try:
        yield server, port
    finally:
        await server.stop(0.1)


@asynccontextmanager
async def connected(
    port: int,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def server_context(pki: Pki) -> ssl.SSLContext:
    pair = pki.server()
    return httpd.server_context(pair.cert_file, pair.key_file, client_ca_file=pki.ca_file)


def client_context(pki: Pki, pair: Credentials | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pki.ca_file)
    if pair:
        context.load_cert_chain(pair.cert_file, pair.key_file)
    return context


async def fetch(port: int, context: ssl.SSLContext) -> object:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://localhost:{port}/", ssl=context) as response,
    ):
        return await response.json()


async def test_a_client_certificate_names_its_user_and_groups(pki: Pki) -> None:
    async with serving(whoami, context=server_context(pki)) as (_, port):
        pair = pki.client("system:node:alpha", "system:nodes")
        assert await fetch(port, client_context(pki, pair)) == [
            "system:node:alpha",
            "system:nodes",
            "system:authenticated",
        ]


async def test_a_client_without_a_certificate_is_served_and_is_nobody(pki: Pki) -> None:
    async with serving(whoami, context=server_context(pki)) as (_, port):
        assert await fetch(port, client_context(pki)) is None


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        # X.509 authentication of the API reference: CN is the user, each O a group
        ([("commonName", "a")], ("a", ("system:authenticated",))),
        (
            [("organizationName", "g"), ("organizationName", "h"), ("commonName", "a")],
            ("a", ("g", "h", "system:authenticated")),
        ),
        ([("organizationName", "system:authenticated"), ("commonName", "a")],
         ("a", ("system:authenticated",))),
        ([("commonName", "first"), ("commonName", "last")], ("last", ("system:authenticated",))),
        ([("commonName", "")], None),
        ([("organizationName", "system:masters")], None),
        ([], None),
    ],
)  # fmt: skip
def test_the_subject_becomes_an_identity(
    subject: list[tuple[str, str]], expected: tuple[str, tuple[str, ...]] | None
) -> None:
    identity = httpd.identity_of({"subject": tuple((pair,) for pair in subject), "version": 3})
    assert (identity and (identity.name, identity.groups)) == expected


@pytest.mark.parametrize("certificate", [None, {}])
def test_no_certificate_is_no_identity(certificate: dict[str, object] | None) -> None:
    assert httpd.identity_of(certificate) is None


async def test_the_certificate_is_read_once_per_connection(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    real = httpd.identity_of
    monkeypatch.setattr(httpd, "identity_of", lambda cert: read.append(cert) or real(cert))
    context = client_context(pki, pki.client("a"))
    async with (
        serving(whoami, context=server_context(pki)) as (_, port),
        aiohttp.ClientSession() as session,
    ):
        for _ in range(3):
            async with session.get(f"https://localhost:{port}/", ssl=context) as response:
                assert (await response.json())[0] == "a"
    assert len(read) == 1


async def test_versions_before_tls_1_2_are_refused(pki: Pki) -> None:
    old = client_context(pki)
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    async with serving(whoami, context=server_context(pki)) as (_, port):
        with pytest.raises(aiohttp.ClientError):
            await fetch(port, old)


async def test_another_certificate_is_shown_once_it_is_loaded(pki: Pki) -> None:
    context = server_context(pki)
    async with serving(whoami, context=context) as (_, port):
        renewed = pki.server("renewed.example", "localhost")
        httpd.load_certificate(context, renewed.cert_file, renewed.key_file)
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_context(pki), server_hostname="renewed.example"
        )
        writer.close()
        await writer.wait_closed()


async def test_tls_buffers_are_small(pki: Pki) -> None:
    async with serving(whoami, context=server_context(pki)):
        assert asyncio.sslproto.SSLProtocol.max_size == 16384


async def test_a_client_that_sends_no_hello_is_closed(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "HANDSHAKE_TIMEOUT_S", 0.05)
    async with serving(whoami, context=server_context(pki)) as (server, port):
        async with connected(port) as (reader, _), asyncio.timeout(30):
            assert await reader.read() == b""
        assert server.connection_limit.open == 0


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
@pytest.mark.parametrize("why", ["expired", "foreign"])
async def test_a_client_whose_certificate_is_refused_gets_the_alert_and_the_log_says_why(
    pki: Pki, tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str, version: str
) -> None:
    (tmp_path / "other").mkdir()
    refused = {
        "expired": (pki.ended_client("mallory", "g"), "certificate expired", "has expired"),
        "foreign": (Pki(tmp_path / "other").client("mallory", "g"), "unknown ca", "local issuer"),
    }
    pair, alert, reason = refused[why]
    before = Counter(certificates.refused)
    async with serving(whoami, context=server_context(pki)) as (server, port):
        ours = f"-cert {pair.cert_file} -key {pair.key_file} -CAfile {pki.ca_file}"
        for _ in range(2):
            client = await asyncio.create_subprocess_exec(
                *f"openssl s_client -connect 127.0.0.1:{port} -ign_eof {version} {ours}".split(),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            async with asyncio.timeout(30):
                said, _ = await client.communicate()
            assert f"alert {alert}" in said.decode()
        while server.connection_limit.open:
            await asyncio.sleep(0.001)
    (line,) = caplog.messages
    assert re.match(
        "test server refuses the client certificate O=g,.*CN=mallory, valid until", line
    )
    assert reason in line and line.endswith("(from 127.0.0.1)")
    label = {"expired": "expired", "foreign": "unknown_authority"}[why]
    assert Counter(certificates.refused) - before == {label: 2}


async def test_who_sends_on_after_a_refusal_is_cut(pki: Pki) -> None:
    """Whatever comes is not collected while the client is given time to see the alert."""
    pair = pki.ended_client("mallory")
    async with serving(whoami, context=server_context(pki)) as (server, port):
        context = client_context(pki, pair)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        with pytest.raises(OSError):
            async with asyncio.timeout(30):
                while True:
                    writer.write(b"x" * 4096)
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.close()
        while server.connection_limit.open:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("secure", [False, True])
async def test_at_the_limit_the_oldest_idle_connection_gives_its_place(
    pki: Pki, *, secure: bool
) -> None:
    context = server_context(pki) if secure else None
    # One address may have half of the connections.
    async with (
        serving(whoami, context=context, max_connections=4) as (server, port),
        AsyncExitStack() as held,
    ):
        readers = []
        for number in range(5):
            reader, _ = await held.enter_async_context(connected(port))
            readers.append(reader)
            while server.connection_limit.open + server.connection_limit.shed < number + 1:
                await asyncio.sleep(0)
        assert [await reader.read() for reader in readers[:3]] == [b"", b"", b""]
        assert (
            server.connection_limit.open,
            server.connection_limit.shed,
            server.connection_limit.refused,
        ) == (2, 3, 0)


async def test_a_request_under_way_is_not_cut_for_another_connection() -> None:
    arrived, finish = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        arrived.set()
        await finish.wait()
        return web.Response(text="finished")

    async with (
        serving(slow, max_connections=2) as (server, port),
        aiohttp.ClientSession() as session,
    ):
        request = asyncio.ensure_future(session.get(f"http://127.0.0.1:{port}/"))
        await arrived.wait()
        async with connected(port) as (reader, _):
            assert await reader.read() == b""
        assert (server.connection_limit.open, server.connection_limit.refused) == (1, 1)
        finish.set()
        assert await (await request).text() == "finished"


async def test_it_listens_at_each_of_its_addresses_and_names_all_when_it_cannot() -> None:
    async with serving(whoami) as (first, port):
        app, both = web.Application(), ("127.0.0.2", "127.0.0.1")
        app.router.add_get("/", whoami)
        second = HttpServer(app, host=both, port=port, name="the agent")
        with pytest.raises(SetupError, match=r"cannot listen on 127\.0\.0\.2,127\.0\.0\.1:"):
            await second.start()
        await first.stop()
        assert await second.start() == port
        async with aiohttp.ClientSession() as session:
            for address in both:
                async with session.get(f"http://{address}:{port}/") as response:
                    assert response.status == 200
        await second.stop()


async def test_a_port_in_use_is_named_with_the_server() -> None:
    async with serving(whoami) as (_, port):
        second = HttpServer(web.Application(), host="127.0.0.1", port=port, name="the agent")
        with pytest.raises(SetupError) as caught:
            await second.start()
    assert str(caught.value) == (
        f"the agent: cannot listen on 127.0.0.1:{port}: address already in use; end who listens"
        " there (`ss -ltnp` names it), or choose another port"
    )


async def test_a_server_that_found_its_port_taken_starts_when_it_is_free() -> None:
    async with serving(whoami) as (first, port):
        app = web.Application()
        app.router.add_get("/", whoami)
        second = HttpServer(app, host="127.0.0.1", port=port, name="the agent")
        with pytest.raises(SetupError):
            await second.start()
        await first.stop()
        assert await second.start() == port
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/") as response,
        ):
            assert (response.status, "Server" in response.headers) == (200, False)
        await second.stop()


async def test_without_the_c_parser_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_parser, "HttpRequestParser", http_parser.HttpRequestParserPy)
    with pytest.raises(SetupError, match="C parser is missing"):
        await HttpServer(web.Application(), host="127.0.0.1", port=0, name="x").start()


async def read(request: web.Request) -> web.Response:
    within_s = float(request.query.get("within", 30))
    return web.Response(body=await httpd.read_body(request, timeout_s=within_s))


async def post(data: object, **headers: str) -> tuple[int, bytes]:
    async with (
        serving(read) as (_, port),
        aiohttp.ClientSession() as session,
        session.post(f"http://127.0.0.1:{port}/", data=data, headers=headers) as response,
    ):
        return response.status, await response.read()


async def test_a_body_is_read_whole() -> None:
    assert await post(b"x" * 100) == (200, b"x" * 100)


async def test_a_body_above_the_limit_is_refused() -> None:
    status, body = await post(b"x" * 101)
    assert status == 413
    assert b"Request entity too large: limit is 100" in body


async def test_a_body_that_says_it_is_above_the_limit_is_not_waited_for() -> None:
    async with serving(read) as (_, port), connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\nhalf")
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")


async def test_of_a_refused_body_little_is_read_and_its_sender_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(httpd, "LINGER_S", 0.3)
    length, piece, sent = 200_000_000, bytes(1_000_000), 0
    async with serving(read) as (_, port), connected(port) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % length)
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        with contextlib.suppress(ConnectionError):
            while sent < length:
                writer.write(piece)
                await writer.drain()
                sent += len(piece)
    assert sent < length // 2, "what the kernel holds, and little more"


async def test_a_short_body_that_is_refused_keeps_its_connection() -> None:
    async with serving(read) as (_, port), connected(port) as (reader, writer):
        for _ in range(2):
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
            writer.write(bytes(101))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)


async def test_a_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpd, "LINGER_S", 0.01)
    async with serving(read) as (_, port), connected(port) as (reader, writer):
        writer.write(b"POST /?within=0.05 HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 0.05 s" in answer


async def test_a_compressed_body_is_refused_not_inflated() -> None:
    status, body = await post(b"x", **{"Content-Encoding": "gzip"})
    assert status == 415
    assert b"gzip" in body


async def test_connections_are_ours() -> None:
    async def protocol(request: web.Request) -> web.Response:
        if not isinstance(request.protocol, Connection):
            raise ApiError(500, "InternalError", "not ours")
        return web.Response()

    async with (
        serving(protocol) as (_, port),
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/") as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize(
    ("allowed_files", "connections"), [(-1, 100), (1024, 100), (300, 75), (64, 16)]
)
async def test_a_listener_leaves_descriptors_for_other_things(
    monkeypatch: pytest.MonkeyPatch, allowed_files: int, connections: int
) -> None:
    monkeypatch.setattr(httpd.system, "open_files", lambda: allowed_files)
    async with serving(whoami) as (server, port), AsyncExitStack() as clients:
        for _ in range(120):
            await clients.enter_async_context(connected(port))
        async with asyncio.timeout(30):
            while server.connection_limit.open + server.connection_limit.shed < 120:
                await asyncio.sleep(0.001)
        assert server.connection_limit.open == connections // 2  # from one address
