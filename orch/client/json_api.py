"""An API server's objects as JSON data, of any kind: a record, all pages of a list, a watch.

For programs that show and send objects without interpreting them; `resources` has typed records. A
refusal of the server is an ApiError, a missing or unusable response a TransportError; nothing is
retried.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import orjson

from orch.client import answers
from orch.client.transport import Response, Stream, Transport, TransportError, given
from orch.wire import raw
from orch.wire.errors import ApiError

if TYPE_CHECKING:
    import aiohttp

JSON = "application/json"
PAGE = "500"  # objects per response, like other clients
MAX_PAGES = 10_000  # of one list
SILENCE_S = 120.0  # of a watch; the server sends a bookmark each minute
_REFUSAL_BYTES = 2**20
_NO_LISTS = ("", "Status")

Params = Mapping[str, str]
_EVENTS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")


class JsonApi:
    """Requests to an API server; parameters with an empty value are left out."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def get(
        self, path: str, params: Params | None = None, *, accept: str = JSON
    ) -> dict[str, Any]:
        return self._record(await self.call("GET", path, params=params, accept=accept))

    async def find(self, path: str) -> dict[str, Any] | None:
        """An object by its path; None when there is none."""
        try:
            found = await self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        if not raw.text(found, "kind"):
            server = self.transport.config.server
            raise TransportError(f"{server} answered what is not an object at {path}")
        return found

    async def items(self, path: str, **params: str) -> list[Mapping[str, Any]]:
        """The objects of a collection, all its pages."""
        return raw.records(await self.pages(path, {**params, "limit": PAGE}), "items")

    async def pages(self, path: str, params: Params, *, accept: str = JSON) -> dict[str, Any]:
        """A list or a Table, with the items or rows of every page; TransportError for others."""
        server = self.transport.config.server
        whole, size = await self._page(path, params, accept)
        token, seen = raw.text(whole, "metadata", "continue"), set[int]()
        for _ in range(MAX_PAGES):
            if not token:
                return whole
            seen.add(hash(token))
            page, more = await self._page(path, {**params, "continue": token}, accept)
            token, size = raw.text(page, "metadata", "continue"), size + more
            if hash(token) in seen:
                raise TransportError(f"{server} answered a page of {path} that leads to itself")
            if size > answers.MAX_BYTES:
                break
            for member in ("rows", "items"):
                if isinstance(page.get(member), list):
                    if not isinstance(whole.get(member), list):
                        whole[member] = []  # null: the first page may hold nothing that fits
                    whole[member].extend(page[member])
        bound = f"{MAX_PAGES} pages or {answers.MAX_BYTES // 2**20} MiB"
        raise TransportError(f"{server} answered a list of {path} of more than {bound}")

    async def _page(self, path: str, params: Params, accept: str) -> tuple[dict[str, Any], int]:
        """One page and its bytes."""
        answer = await self.call("GET", path, params=params, accept=accept)
        page = self._record(answer)
        kind = raw.text(page, "kind")
        member = "rows" if kind == "Table" else "items"  # a definition names the kind of its lists
        if kind in _NO_LISTS or not isinstance(page.get(member, ""), list | None):
            what = f"its kind is {kind!r}" if kind in _NO_LISTS else f"it has no {member}"
            server = self.transport.config.server
            raise TransportError(f"{server} answered what is not a list of {path}: {what}")
        return page, len(answer.body)

    async def watch(
        self, path: str, params: Params, *, accept: str = JSON, silence_s: float = SILENCE_S
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """(type, object) of each change until the server ends the watch; close it (`aclosing`).

        TransportError after `silence_s` without one.

        An ERROR event is raised as its ApiError; code 410 requires a new list.
        """
        wanted = {**params, "watch": "true", "allowWatchBookmarks": "true"}
        async with (
            self.stream(path, wanted, accept=accept, silence_s=silence_s) as stream,
            contextlib.aclosing(stream.lines()) as lines,
        ):
            async for line in lines:
                if line.strip():
                    kind, record = self._event(line)
                    if kind == "ERROR":
                        raise ApiError.from_status(record, code=500)
                    yield kind, record

    async def send(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        params: Params | None = None,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        """Send JSON data and return the record in the response; TypeError if it is not JSON."""
        data = self.encode(body)
        answer = await self.call(method, path, params=params, body=data, content_type=content_type)
        return self._record(answer)

    def encode(self, body: Any) -> bytes:
        return orjson.dumps(body)

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str = JSON,
    ) -> Response:
        """A single request; a status of 300 and above is raised as ApiError."""
        query = given(**params or {})
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        answer = await self.transport.request(
            method, path, params=query, body=body, content_type=content_type, accept=accept
        )
        self.answered(method, path, query, answer, loop.time() - begin_s)
        if answer.status >= 300:
            raise answers.refusal(answer)
        return answer

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Params | None = None, *, accept: str = JSON, silence_s: float = 0.0
    ) -> AsyncIterator[Stream]:
        """A GET whose response is read as it arrives; a refusal is raised as ApiError.

        It ends after `silence_s` without a byte; 0 waits forever.
        """
        query = given(**params or {})
        async with self.transport.stream(
            path, params=query, accept=accept, silence_s=silence_s
        ) as stream:
            self.answered("GET", path, query, stream)
            if stream.status >= 300:
                limit_s = self.transport.timeout_s
                body = await stream.beginning(_REFUSAL_BYTES, within_s=limit_s)
                raise answers.refusal(Response(stream.status, body, stream.headers))
            yield stream

    @contextlib.asynccontextmanager
    async def websocket(
        self, target: str, protocols: Sequence[str]
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """An open WebSocket at a path with its query; a refusal is raised as ApiError."""
        path, _, query = target.partition("?")
        async with self.transport.websocket(target, protocols) as opened:
            if isinstance(opened, Response):
                self.answered("GET", path, dict(parse_qsl(query)), opened)
                raise answers.refusal(opened)
            yield opened

    def answered(
        self, method: str, path: str, query: Params, answer: Response | Stream, took_s: float = 0.0
    ) -> None:
        """Called with each response, refusals too; `took_s` is 0 while it still arrives."""

    def _event(self, line: bytes) -> tuple[str, dict[str, Any]]:
        try:
            event = orjson.loads(line)
            if event["type"] not in _EVENTS:
                raise ValueError(f"its type is {event['type']!r}")
            if not raw.text(event["object"], "kind"):
                raise ValueError("its object has no kind")
            return event["type"], event["object"]
        except (ValueError, TypeError, KeyError) as error:
            server = self.transport.config.server
            raise TransportError(f"{server} answered what is not a watch event: {error}") from error

    def _record(self, answer: Response) -> dict[str, Any]:
        return answers.json_object(answer, self.transport.config.server)
