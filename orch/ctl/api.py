"""The API as raw JSON: the client command shows and sends objects it need not understand.

Adds to the transport what a command wants: refusals as ApiError, warnings and requests on
standard error.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import orjson

from orch.client.transport import Response, Stream, Transport, TransportError
from orch.ctl.failures import CommandFailed, did_you_mean, one_line
from orch.wire import raw
from orch.wire.errors import ApiError

JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PATCH_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_PAGE = "500"  # objects per answer, as other clients ask
_NEAR_LIMIT = "500"  # names looked at for one nearly right
_QUOTED_LENGTH = 300  # of an answer that is not a Status: enough for a sentence


class Api:
    """Requests to one API server; `namespace` is the one to use when none is named."""

    def __init__(self, transport: Transport, *, namespace: str, verbosity: int = 0) -> None:
        self.namespace = namespace
        self._transport = transport
        self._verbosity = verbosity

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> dict[str, Any]:
        return self._record(await self.call("GET", path, params=params, accept=accept))

    async def find(self, path: str) -> dict[str, Any] | None:
        """One object by its path; None when there is none."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def read(self, path: str, *, accept: str = JSON) -> dict[str, Any]:
        """One object by its path; when it is missing, the error names one called nearly so."""
        async with self.naming(path):
            return await self.get(path, accept=accept)

    @contextlib.asynccontextmanager
    async def naming(self, path: str) -> AsyncIterator[None]:
        """When the object of a path is missing, the error names one called nearly so."""
        try:
            yield
        except ApiError as error:
            if error.code == 404 and error.name:
                error.message += await self.near(path, error.name)
            raise

    async def near(self, path: str, name: str) -> str:
        """`: did you mean 'web-0'?`, or "" when nothing is near or the list may not be read."""
        collection = path.rpartition(f"/{segment(name)}")[0]
        try:
            listed = await self.get(collection, {"limit": _NEAR_LIMIT})
        except (ApiError, TransportError):
            return ""
        names = [raw.text(item, "metadata", "name") for item in raw.records(listed, "items")]
        return did_you_mean(name, names)

    async def items(
        self, path: str, params: Mapping[str, str] | None = None
    ) -> list[Mapping[str, Any]]:
        """The objects of a collection, all its pages."""
        return raw.records(await self.pages(path, {**(params or {}), "limit": _PAGE}), "items")

    async def pages(
        self, path: str, params: Mapping[str, str], *, accept: str = JSON
    ) -> dict[str, Any]:
        """A list or a Table, with the items or rows of every page."""
        whole = page = await self.get(path, params, accept=accept)
        while token := raw.text(page, "metadata", "continue"):
            page = await self.get(path, {**params, "continue": token}, accept=accept)
            for member in ("rows", "items"):
                whole[member] = (whole.get(member) or []) + (page.get(member) or [])
        return whole

    async def send(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        """Send JSON data, give the record that is answered."""
        try:
            encoded = orjson.dumps(body)
        except TypeError as error:
            raise CommandFailed(f"what is to be sent cannot be written as JSON: {error}") from None
        answer = await self.call(
            method, path, params=params, body=encoded, content_type=content_type
        )
        return self._record(answer)

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str | None = None,
        accept: str = JSON,
    ) -> Response:
        """One request; an answer of 300 and above is raised as ApiError."""
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        answer = await self._transport.request(
            method, path, params=given(**params) if params else None, body=body,
            content_type=content_type, accept=accept,
        )  # fmt: skip
        self._tell(
            method, path, params, f"{answer.status} in {(loop.time() - begin_s) * 1000:.0f} ms"
        )
        for warning in _warnings(answer):
            print(f"Warning: {warning}", file=sys.stderr)
        if answer.status >= 300:
            raise refusal(answer)
        return answer

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> AsyncIterator[Stream]:
        """A GET whose answer is read as it arrives; a refusal is raised as ApiError."""
        wanted = given(**params) if params else None
        async with self._transport.stream("GET", path, params=wanted, accept=accept) as stream:
            self._tell("GET", path, params, f"{stream.status}, as it comes")
            if stream.status >= 300:
                raise refusal(Response(stream.status, await stream.read(), stream.headers))
            yield stream

    def _tell(self, method: str, path: str, params: Mapping[str, str] | None, outcome: str) -> None:
        if self._verbosity:
            query = urlencode(given(**params), safe=",/") if params else ""
            shown = f"{self._transport.config.server}{path}{query and f'?{query}'}"
            print(one_line(f"{method} {shown}: {outcome}"), file=sys.stderr)

    def _record(self, answer: Response) -> dict[str, Any]:
        try:
            data = orjson.loads(answer.body)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            server = self._transport.config.server
            raise TransportError(f"{server} did not answer with a JSON object")
        return data


def given(**params: str) -> dict[str, str]:
    """Query parameters without the empty ones."""
    return {key: value for key, value in params.items() if value}


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe=":", errors="surrogateescape")  # argv may hold any bytes


def refusal(answer: Response) -> ApiError:
    """The Status of an answer; of plain text (a node agent's), what it says."""
    try:
        data = orjson.loads(answer.body)
    except ValueError:
        data = None
    error = ApiError.from_status(data, code=answer.status)
    text = answer.body[:_QUOTED_LENGTH].decode(errors="replace").strip()
    if data is None and text and not text.startswith("<"):
        error.message = f"{error.message}: {text}"
    return error


def _warnings(answer: Response) -> list[str]:
    """The texts of `Warning: 299 - "text"` headers."""
    value = answer.headers.get("Warning", "")
    quoted = re.findall(r'"((?:\\.|[^"\\])*)"', value)
    return [one_line(re.sub(r"\\(.)", r"\1", text)) for text in quoted]
