"""A canary: what `orch/component/http` relies on though aiohttp and asyncio do not promise it.

When it fails after an update, look at the code it names first, then at failures elsewhere; measure
with `python -m tools.bench aiohttp_internals`, and move the range in pyproject.toml.
"""

from __future__ import annotations

import asyncio
import asyncio.constants
import asyncio.sslproto
import inspect
import tomllib
from collections.abc import Iterator
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from aiohttp import http_parser, payload, streams, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_writer import StreamWriter
from aiohttp.web_protocol import RequestHandler

from orch.component.http.connection import Connection
from orch.component.http.httpd import SHORTCUT, HttpServer, Shortcut
from orch.component.http.sliced_response import framed, write_chunk

PYPROJECT = Path(__file__).resolve().parents[4] / "pyproject.toml"

# Who relies on it, where it is, and the names.
NAMES: tuple[tuple[str, Any, str], ...] = (
    ("Connection", RequestHandler, "_close _force_close _current_request _messages _task_handler"),
    ("Connection", RequestHandler, "close force_close transport _waiter _pause_transport_reading"),
    ("Connection", RequestHandler, "_resume_transport_reading _reading_paused _buffer_paused"),
    ("sliced_response.takes_more", RequestHandler, "writing_paused"),
    ("Connection.data_received", RequestHandler, "_payload_parser _upgraded"),
    ("BareResponse", web.StreamResponse, "_prepare_headers"),
    ("Shortcut", web.Request, "_match_info"),
    ("Shortcut", web.UrlMappingMatchInfo, "add_app current_app freeze"),
    ("httpd.read_body", streams.StreamReader, "at_eof is_eof read_nowait total_bytes"),
    ("responses.answer_error", StreamWriter, "output_size"),
    ("httpd.HttpServer", http_parser, "HttpRequestParser HttpRequestParserPy"),
    ("limit_tls_buffers", asyncio.sslproto.SSLProtocol, "max_size"),
    ("limit_tls_buffers", asyncio.constants, "FLOW_CONTROL_HIGH_WATER_SSL_READ"),
    ("limit_tls_buffers", asyncio.constants, "FLOW_CONTROL_HIGH_WATER_SSL_WRITE"),
    ("Connection.finish_response", web.Request, "_read_bytes"),
    ("Connection.finish_response", web.Response, "_body"),
    ("sliced_response.send", StreamWriter, "protocol transport"),
)
PARAMETERS: tuple[tuple[str, Any, str, str], ...] = (
    ("Connection", RequestHandler, "handle_error", "self request status exc message"),
    ("Connection", RequestHandler, "connection_lost", "self exc"),
    ("Connection", RequestHandler, "data_received", "self data"),
    ("Connection", RequestHandler, "finish_response", "self request resp start_time"),
    ("Connection", RequestHandler, "pause_writing", "self"),
    ("Connection", RequestHandler, "resume_writing", "self"),
    ("BareResponse", web.StreamResponse, "_prepare_headers", "self"),
    ("SlicedBody", payload.Payload, "write", "self writer"),
)


def other_names() -> Iterator[str]:
    for user, owner, names in NAMES:
        for name in names.split():
            if not hasattr(owner, name):
                yield f"{owner.__name__}.{name} is gone: look at {user}"
    for user, owner, name, expected in PARAMETERS:
        function = getattr(owner, name, None)
        if function and list(inspect.signature(function).parameters) != expected.split():
            yield f"{owner.__name__}.{name} takes other parameters: look at {user}"


def other_version(installed: str) -> Iterator[str]:
    (pinned,) = (
        one
        for one in tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
        if one.startswith("aiohttp")
    )
    major, minor = map(int, installed.split(".")[:2])
    if pinned != f"aiohttp>={major}.{minor},<{major}.{minor + 1}":
        yield f"{installed} is installed, {pinned} was tested"


class _Body(payload.Payload):
    """Written the way `SlicedBody` is."""

    _size = 4

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return "body"

    async def write(self, writer: AbstractStreamWriter) -> None:
        await writer.write(memoryview(b"body"))


class _Served:
    """An application whose only handler notes what it sees."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self._seen: ContextVar[bool] = ContextVar("seen", default=False)
        self._tasks: list[asyncio.Task[Any] | None] = []
        app = web.Application()
        self.server = HttpServer(app, host="127.0.0.1", port=0, name="canary")
        app[SHORTCUT] = Shortcut(("/a/",), app.router.add_get("/a/{path:.+}", self._handle))

    def _expect(self, holds: bool, change: str) -> None:
        if not holds:
            self.changes.append(change)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._expect("path" not in request.match_info, "requests are routed: look at Shortcut")
        self._expect(isinstance(request.protocol, Connection), "protocols: look at AcceptedSocket")
        self._expect(not self._seen.get(), "requests share a context: look at requestid")
        self._expect(
            asyncio.current_task() not in self._tasks, "requests share a task: look at Deadlines"
        )
        self._seen.set(True)
        self._tasks.append(asyncio.current_task())
        if request.path == "/a/body":
            return web.Response(body=_Body(b""))
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        write_chunk(request, framed(b"chunk"))
        await response.write_eof()
        return response

    async def ask(self) -> None:
        port = await self.server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /a/chunk HTTP/1.1\r\nHost: h\r\n\r\n")
        writer.write(b"GET /a/body HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        answered = await reader.read()
        writer.close()
        await self.server.stop(0.1)
        self._expect(b"\r\n5\r\nchunk\r\n0\r\n\r\n" in answered, "chunks: look at write_chunk")
        self._expect(answered.endswith(b"\r\n\r\nbody"), "bodies: look at SlicedBody")
        self._expect(b"\r\nServer:" not in answered, "headers: look at httpd.HttpServer")


async def test_aiohttp_is_still_what_is_relied_on() -> None:
    served = _Served()
    async with asyncio.timeout(20):
        await served.ask()
    found = [*other_version(version("aiohttp")), *other_names(), *served.changes]
    assert not found, f"aiohttp changed: {'; '.join(found)}"


def test_what_changed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(asyncio.sslproto.SSLProtocol, "max_size")
    monkeypatch.setattr(RequestHandler, "connection_lost", lambda self: None)
    assert list(other_names()) == [
        "SSLProtocol.max_size is gone: look at limit_tls_buffers",
        "RequestHandler.connection_lost takes other parameters: look at Connection",
    ]
    assert list(other_version("3.99.1"))
