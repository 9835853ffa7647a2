import asyncio
import concurrent.futures
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from orch.client import tls
from orch.client.kubeconfig import ClientConfig
from orch.client.transport import Response, Stream, Transport, TransportError
from orch.component.http import httpd
from orch.component.http.httpd import HttpServer
from tests.conftest import Pki


class Server:
    """A server that shows what it was asked, over TLS, and counts its connections."""

    def __init__(self, pki: Pki) -> None:
        app = web.Application()
        app.router.add_route("*", "/echo/{rest:.*}", self.echo)
        app.router.add_get("/identity", self.identity)
        app.router.add_get("/refused", self.refused)
        app.router.add_get("/hang", self.hang)
        app.router.add_get("/watch", self.watch)
        app.router.add_get("/late", self.late)
        app.router.add_get("/redirect", self.redirect)
        app.router.add_get("/cut", self.cut)
        pair = pki.server()
        self.context = httpd.server_context(
            pair.cert_file, pair.key_file, client_ca_file=pki.ca_file
        )
        self._http = HttpServer(
            app, host="127.0.0.1", port=0, ssl_context=self.context, name="test"
        )
        self.connections: set[object] = set()
        self.more = asyncio.Event()
        self.late_asked = asyncio.Event()
        self.seen: CIMultiDictProxy[str] = CIMultiDictProxy(CIMultiDict())
        self.url = ""

    async def start(self) -> None:
        self.url = f"https://127.0.0.1:{await self._http.start()}"

    async def stop(self) -> None:
        await self._http.stop(0.05)

    async def echo(self, request: web.Request) -> web.Response:
        self.connections.add(request.transport)
        self.seen = request.headers
        return web.json_response(
            {
                "method": request.method,
                "raw": request.raw_path,
                "body": await request.text(),
                "headers": {k: v for k, v in request.headers.items() if k != "Host"},
            }
        )

    async def identity(self, request: web.Request) -> web.Response:
        identity = httpd.current_peer(request)
        return web.Response(text=identity.name if identity else "", headers={"X-Kind": "text"})

    async def refused(self, _request: web.Request) -> web.Response:
        return web.Response(status=401)

    async def hang(self, _request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def watch(self, request: web.Request) -> web.StreamResponse:
        """Who asks, at once, and more when it is time."""
        response = web.StreamResponse()
        await response.prepare(request)
        identity = httpd.current_peer(request)
        await response.write(f"{identity.name if identity else ''}\n".encode())
        await self.more.wait()
        await response.write(b"more\n")
        await asyncio.Event().wait()
        raise AssertionError

    async def late(self, request: web.Request) -> web.StreamResponse:
        """A watch that begins only when it is time."""
        self.late_asked.set()
        await self.more.wait()
        return await self.watch(request)

    async def redirect(self, _request: web.Request) -> web.Response:
        response = web.Response(status=302, headers={"Location": "https://elsewhere.example/"})
        response.set_cookie("name", "value")
        return response

    async def cut(self, request: web.Request) -> web.Response:
        response = web.StreamResponse()
        response.content_length = 100
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport
        request.transport.close()
        raise ConnectionResetError


@pytest.fixture
async def server(pki: Pki) -> AsyncIterator[Server]:
    server = Server(pki)
    await server.start()
    yield server
    await server.stop()


MakeTransport = Callable[..., Transport]


@pytest.fixture
async def make(server: Server, pki: Pki) -> AsyncIterator[MakeTransport]:
    """Transports to the server that are closed afterwards; keywords go into the config."""
    made = []

    def make(*, timeout_s: float = 5.0, **fields: object) -> Transport:
        options = {"server": server.url, "ca_file": pki.ca_file, **fields}
        made.append(Transport(ClientConfig(**options), timeout_s=timeout_s, user_agent="tester/1"))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for transport in made:
        await transport.close()


async def asked(transport: Transport, *args: str, **kwargs: object) -> dict[str, object]:
    import json

    return json.loads((await transport.request(*args, **kwargs)).body)  # type: ignore[arg-type, no-any-return]


async def test_a_request_arrives_unchanged(make: MakeTransport) -> None:
    seen = await asked(
        make(),
        "PATCH",
        "/echo/a%2Fb",
        params={"x": "1 2", "y": "a,b=c"},
        body=b"{}",
        content_type="application/x",
        accept="text/*",
    )
    assert seen["method"] == "PATCH"
    assert seen["raw"] == "/echo/a%2Fb?x=1+2&y=a,b%3Dc"
    assert seen["body"] == "{}"
    headers = seen["headers"]
    assert isinstance(headers, dict)
    assert headers["User-Agent"] == "tester/1"
    assert headers["Content-Type"] == "application/x"
    assert headers["Accept"] == "text/*"
    assert "Authorization" not in headers


async def test_headers_of_a_transport_go_with_every_request_and_may_repeat(
    server: Server, pki: Pki
) -> None:
    transport = Transport(
        ClientConfig(server=server.url, ca_file=pki.ca_file),
        headers=[("Impersonate-User", "u"), ("Impersonate-Group", "g"), ("Impersonate-Group", "h")],
    )
    await transport.request("GET", "/echo/")
    assert server.seen.getall("Impersonate-User") == ["u"]
    assert server.seen.getall("Impersonate-Group") == ["g", "h"]
    await transport.close()


async def test_an_answer_has_status_body_and_headers_in_any_case(make: MakeTransport) -> None:
    transport = make()
    response = await transport.request("GET", "/identity")
    assert (response.status, response.body, response.headers["x-kind"]) == (200, b"", "text")
    assert (await transport.request("GET", "/no")).status == 404


async def test_the_client_certificate_is_shown(make: MakeTransport, pki: Pki) -> None:
    pair = pki.client("system:node:a", "system:nodes")
    transport = make(cert_file=pair.cert_file, key_file=pair.key_file)
    assert (await transport.request("GET", "/identity")).body == b"system:node:a"


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_refused_client_certificate_is_named_as_the_cause(
    make: MakeTransport, pki: Pki, tmp_path: Path, server: Server, newest: ssl.TLSVersion
) -> None:
    (tmp_path / "other").mkdir()
    server.context.maximum_version = newest
    ended, foreign = pki.ended_client("a"), Pki(tmp_path / "other").client("a")
    yesterday = f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%dT}"
    for pair, cause in (
        (ended, f"the client certificate expired on {yesterday}"),
        (foreign, "the server refuses the client certificate: the server does not know its auth"),
    ):
        transport = make(cert_file=pair.cert_file, key_file=pair.key_file)
        for call in (transport.request("GET", "/identity"), _read(transport.stream("/watch"))):
            with pytest.raises(TransportError, match=cause):
                await call


async def test_a_key_that_does_not_fit_is_a_fault_of_the_file(
    make: MakeTransport, pki: Pki
) -> None:
    transport = make(cert_file=pki.ended_client("a").cert_file, key_file=pki.client("b").key_file)
    with pytest.raises(
        TransportError, match=r"cannot use the client certificate .* values mismatch"
    ):
        await transport.request("GET", "/identity")


async def test_a_server_that_is_down_is_not_blamed_on_an_expired_certificate(
    pki: Pki, free_port: Callable[[], int]
) -> None:
    pair = pki.ended_client("a")
    address = f"https://127.0.0.1:{free_port()}"
    transport = Transport(
        ClientConfig(address, ca_file=pki.ca_file, cert_file=pair.cert_file, key_file=pair.key_file)
    )
    with pytest.raises(TransportError, match="connection refused"):
        await transport.request("GET", "/")
    await transport.close()


async def _read(opening: AbstractAsyncContextManager[Stream]) -> None:
    async with opening as stream:
        await anext(stream.lines())


async def test_one_connection_serves_many_requests(make: MakeTransport, server: Server) -> None:
    transport = make()
    for _ in range(3):
        await transport.request("GET", "/echo/")
    assert len(server.connections) == 1


async def test_a_reset_dials_anew(make: MakeTransport, server: Server) -> None:
    transport = make()
    await transport.request("GET", "/echo/")
    await transport.reset()
    await transport.request("GET", "/echo/")
    assert len(server.connections) == 2


@pytest.mark.parametrize("by", ["a reset", "a 401"])
async def test_a_renewed_certificate_is_shown_after(make: MakeTransport, pki: Pki, by: str) -> None:
    old, new = pki.client("old"), pki.client("new")
    transport = make(cert_file=old.cert_file, key_file=old.key_file)
    assert (await transport.request("GET", "/identity")).body == b"old"
    for source, target in ((new.cert_file, old.cert_file), (new.key_file, old.key_file)):
        Path(target).write_bytes(Path(source).read_bytes())
    assert (await transport.request("GET", "/identity")).body == b"old"
    if by == "a reset":
        await transport.reset()
    else:
        assert (await transport.request("GET", "/refused")).status == 401
    assert (await transport.request("GET", "/identity")).body == b"new"


@pytest.mark.parametrize("by", ["a reset", "a 401", "a 401 of a stream"])
async def test_streams_end_with_an_error_and_their_next_shows_the_renewed_certificate(
    make: MakeTransport, pki: Pki, by: str
) -> None:
    """aiohttp forgets the reader of a connection that is closed on this side: it waits forever."""
    old, new = pki.client("old"), pki.client("new")
    transport = make(cert_file=old.cert_file, key_file=old.key_file)
    async with transport.stream("/watch") as stream, asyncio.timeout(30):
        lines = stream.lines()
        assert await anext(lines) == b"old"
        hanging = asyncio.ensure_future(anext(lines))
        for source, target in ((new.cert_file, old.cert_file), (new.key_file, old.key_file)):
            Path(target).write_bytes(Path(source).read_bytes())
        if by == "a reset":
            await transport.reset()
        elif by == "a 401":
            assert (await transport.request("GET", "/refused")).status == 401
        else:
            async with transport.stream("/refused") as refused:
                assert refused.status == 401
        with pytest.raises(TransportError, match="its connections are dialled anew"):
            await hanging
    async with transport.stream("/watch") as stream:
        assert await anext(stream.lines()) == b"new"


async def test_a_stream_that_is_being_dialled_during_a_reset_ends_with_an_error_too(
    make: MakeTransport, server: Server
) -> None:
    transport = make()

    async def first_line() -> bytes:
        async with transport.stream("/late") as stream:
            return await anext(stream.lines())

    dialled = asyncio.ensure_future(first_line())
    async with asyncio.timeout(30):
        await server.late_asked.wait()
        await transport.reset()
        server.more.set()
        with pytest.raises(TransportError, match="its connections are dialled anew"):
            await dialled


async def test_a_request_that_fails_leaves_streams_alone(
    make: MakeTransport, server: Server
) -> None:
    transport = make()
    async with transport.stream("/watch") as stream, asyncio.timeout(30):
        lines = stream.lines()
        await anext(lines)
        with pytest.raises(TransportError):
            await transport.request("GET", "/hang", timeout_s=0.05)
        with pytest.raises(TransportError):
            await transport.request("GET", "/cut")
        server.more.set()
        assert await anext(lines) == b"more"


async def test_a_reset_ends_what_hangs(make: MakeTransport) -> None:
    transport = make()
    hanging = asyncio.ensure_future(transport.request("GET", "/hang"))
    await transport.request("GET", "/echo/")
    await transport.reset()
    with pytest.raises(TransportError):
        await hanging


async def test_a_reset_ends_what_waits_for_the_look_up_of_the_name(
    make: MakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error: were the caller cancelled, a loop that asks would end without a word."""
    begun, released = threading.Event(), threading.Event()

    def hang(*_name: object, **_options: int) -> list[object]:
        begun.set()
        assert released.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    transport = make(server="https://slow.example")
    asking = asyncio.ensure_future(transport.request("GET", "/"))
    await asyncio.to_thread(begun.wait, 30)
    try:
        await transport.reset()
        with pytest.raises(TransportError, match="its connections are dialled anew"):
            await asking
    finally:
        released.set()


async def test_tokens_and_passwords_are_sent(make: MakeTransport, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("from-file\n")
    for fields, expected in [
        ({"token": "t"}, "Bearer t"),
        ({"token_file": str(token_file)}, "Bearer from-file"),
        ({"username": "u", "password": "p:ä"}, "Basic dTpwOsOk"),
    ]:
        headers = (await asked(make(**fields), "GET", "/echo/"))["headers"]
        assert isinstance(headers, dict)
        assert headers["Authorization"] == expected


@pytest.mark.parametrize("fields", [{"token": "t"}, {"username": "u", "password": "p"}])
async def test_credentials_go_over_plain_http_to_this_machine_only(
    make: MakeTransport, fields: dict[str, str]
) -> None:
    for host in ("192.0.2.1", "server.example", "localhost.example", "[2001:db8::1]"):
        with pytest.raises(TransportError, match="not sent to another machine over plain http"):
            await make(server=f"http://{host}:1", **fields).request("GET", "/")
    for host in ("127.0.0.1", "localhost", "[::1]"):
        with pytest.raises(TransportError, match=r"refused|cannot assign requested address"):
            await make(server=f"http://{host}:1", **fields).request("GET", "/")


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file or directory"), (b"\xff", "it is not UTF-8 text")]
)
async def test_a_token_file_that_cannot_be_read_is_named(
    make: MakeTransport, tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TransportError, match=f"cannot read the token file {path}: {why}"):
        await make(token_file=str(path)).request("GET", "/echo/x")


async def test_a_rotated_token_file_is_read_again_after_a_minute(
    make: MakeTransport, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("one")
    transport = make(token_file=str(token_file))

    async def sent() -> str:
        await transport.request("GET", "/echo/")
        return server.seen["Authorization"]

    assert await sent() == "Bearer one"
    token_file.write_text("two")
    assert await sent() == "Bearer one"
    monkeypatch.setattr("orch.client.transport.TOKEN_AGE_S", -1.0)
    assert await sent() == "Bearer two"


async def test_a_refused_connection_names_server_and_cause(
    free_port: Callable[[], int],
) -> None:
    url = f"https://127.0.0.1:{free_port()}"
    transport = Transport(ClientConfig(server=url))
    with pytest.raises(TransportError) as caught:
        await transport.request("GET", "/")
    assert str(caught.value) == f"cannot reach {url}: connection refused"
    await transport.close()


async def failure(call: Awaitable[object]) -> str:
    with pytest.raises(TransportError) as caught:
        await call
    return str(caught.value)


async def test_a_slow_answer_is_given_up(make: MakeTransport, server: Server) -> None:
    text = f"cannot reach {server.url}: the server did not answer within 0.05 s"
    for transport, limit_s in ((make(timeout_s=0.05), None), (make(), 0.05)):
        await transport.request("GET", "/echo/", timeout_s=5)  # its certificates are read
        assert await failure(transport.request("GET", "/hang", timeout_s=limit_s)) == text


async def test_a_host_that_never_answers_the_hello_is_given_up() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        # Long enough for the thread that builds the TLS context, whose lateness is another error.
        transport = Transport(ClientConfig(server=url, insecure=True), timeout_s=1.0)
        text = await failure(transport.request("GET", "/"))
        assert text == f"cannot reach {url}: the server did not answer within 1 s"
        await transport.close()


async def test_an_unknown_authority_is_reported(make: MakeTransport) -> None:
    text = await failure(make(ca_file="").request("GET", "/echo/"))
    assert "certificate verify failed: self" in text or "unable to get" in text


async def test_a_certificate_for_another_name_is_reported_and_can_be_expected(
    make: MakeTransport,
) -> None:
    text = await failure(make(tls_server_name="api.example").request("GET", "/echo/"))
    assert "certificate verify failed: Hostname mismatch" in text
    assert text.endswith("valid for 'api.example'")
    assert (await make(tls_server_name="localhost").request("GET", "/echo/")).status == 200


async def test_insecure_trusts_anyone(make: MakeTransport) -> None:
    assert (await make(ca_file="", insecure=True).request("GET", "/echo/")).status == 200


async def test_unusable_files_are_reported(make: MakeTransport) -> None:
    text = await failure(make(ca_file="/no/ca").request("GET", "/echo/"))
    assert text.endswith(": cannot use the authority /no/ca: No such file or directory")


async def test_files_on_a_disk_that_hangs_stop_neither_the_loop_nor_later_tries(
    make: MakeTransport, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, began, reads = threading.Event(), threading.Event(), []

    def hang(config: ClientConfig) -> ssl.SSLContext:
        reads.append(config)
        began.set()
        assert released.wait(30)
        return client_context(config)

    client_context = tls.client_context
    monkeypatch.setattr(tls, "client_context", hang)
    transport = make()
    for _ in range(3):
        assert await failure(transport.request("GET", "/echo/", timeout_s=0.02)) == (
            f"cannot reach {server.url}: reading its certificates or token takes more than 0.02 s"
        )
        await transport.reset()
    assert await asyncio.to_thread(began.wait, 30)
    assert len(reads) == 1, "each further reading would hold a thread"
    released.set()
    assert (await transport.request("GET", "/echo/")).status == 200


async def test_a_name_resolves_and_files_are_read_while_the_loops_own_threads_all_hang(
    make: MakeTransport, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("t")
    released = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        hanging = asyncio.ensure_future(asyncio.to_thread(released.wait, 30))
        named = server.url.replace("127.0.0.1", "localhost")
        try:
            transport = make(server=named, token_file=str(tmp_path / "token"))
            assert (await transport.request("GET", "/echo/")).status == 200
        finally:
            released.set()
            await hanging


async def test_a_broken_off_answer_is_reported(make: MakeTransport, server: Server) -> None:
    assert await failure(make().request("GET", "/cut")) == (
        f"cannot reach {server.url}: the answer broke off"
    )


async def test_redirects_are_not_followed(make: MakeTransport) -> None:
    assert (await make().request("GET", "/redirect")).status == 302


async def test_redirections_of_a_websocket_are_not_followed(make: MakeTransport) -> None:
    async with make().websocket("/redirect", ()) as opened:
        assert isinstance(opened, Response)
        assert opened.status == 302


async def test_no_cookies_are_kept(make: MakeTransport, server: Server) -> None:
    transport = make(server=server.url.replace("127.0.0.1", "localhost"))
    assert "Set-Cookie" in (await transport.request("GET", "/redirect")).headers
    await transport.request("GET", "/echo/")
    assert "Cookie" not in server.seen


def test_its_sockets_notice_a_dead_peer() -> None:
    from orch.component.http.tcp import make_socket

    with make_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert not made.getblocking()


def test_a_command_without_a_server_does_not_import_the_client_library() -> None:
    import subprocess
    import sys

    code = "import sys, orch.client.transport; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
