"""The API as raw JSON: the client command shows and sends objects it need not understand.

Adds to the transport what a command wants: refusals as ApiError, warnings and requests on
standard error.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import orjson

from orch.client.transport import Response, Transport, TransportError
from orch.ctl.failures import CommandFailed, one_line
from orch.wire.errors import ApiError

JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PATCH_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
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
        if self._verbosity:
            took_ms = (loop.time() - begin_s) * 1000
            shown = f"{method} {self._transport.config.server}{path} {dict(params or {})}"
            print(one_line(f"{shown}: {answer.status} in {took_ms:.0f} ms"), file=sys.stderr)
        for warning in _warnings(answer):
            print(f"Warning: {warning}", file=sys.stderr)
        if answer.status >= 300:
            raise refusal(answer)
        return answer

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
    return [one_line(part) for part in value.split('"')[1::2]]
