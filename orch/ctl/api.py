"""The connection of a command to its API server, with objects of any kind as JSON data.

Adds to the client what a command line needs: warnings and requests on standard error, and a
suggestion for a misspelt name.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from orch.client.json_api import JSON, PAGE, JsonApi, Params
from orch.client.transport import Response, Stream, Transport, TransportError
from orch.component.terminal import one_line
from orch.ctl import options
from orch.ctl.failures import CommandFailed, did_you_mean
from orch.wire import raw
from orch.wire.errors import ApiError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class Api(JsonApi):
    """Requests to one API server; `namespace` is the one to use when none is named."""

    def __init__(self, transport: Transport, *, namespace: str, verbosity: int = 0) -> None:
        super().__init__(transport)
        self.namespace = namespace
        self._verbosity = verbosity

    async def read(self, path: str, *, accept: str = JSON) -> dict[str, Any]:
        """One object by its path; when it is missing, the error suggests a similar name."""
        async with self.suggesting(path):
            return await self.get(path, accept=accept)

    @contextlib.asynccontextmanager
    async def suggesting(self, path: str) -> AsyncIterator[None]:
        """When the object at a path is missing, the error suggests a similar name."""
        try:
            yield
        except ApiError as error:
            if error.code == 404 and error.name:
                error.message += await self.similar(path, error.name)
            raise

    async def similar(self, path: str, name: str) -> str:
        """`: did you mean 'web-0'?`, or "" when nothing is close or the list may not be read."""
        collection = path.rpartition(f"/{segment(name)}")[0]
        try:
            listed = await self.get(collection, {"limit": PAGE})
        except (ApiError, TransportError):
            return ""
        names = [raw.text(item, "metadata", "name") for item in raw.records(listed, "items")]
        return did_you_mean(name, names)

    def encode(self, body: Any) -> bytes:
        try:
            return super().encode(body)
        except TypeError as error:
            raise CommandFailed(f"the request cannot be written as JSON: {error}") from None

    def answered(
        self, method: str, path: str, query: Params, answer: Response | Stream, took_s: float = 0.0
    ) -> None:
        """Print the request, when asked for, and the warnings of the server."""
        if self._verbosity:
            shown = f"?{urlencode(query, safe=',/')}" if query else ""
            end = f"in {took_s * 1000:.0f} ms" if took_s else "streaming"
            line = f"{method} {self.transport.config.server}{path}{shown}: {answer.status} {end}"
            print(one_line(line), file=sys.stderr)
        for warning in _warnings(answer.headers):
            print(f"Warning: {warning}", file=sys.stderr)


Action = Callable[[Api, argparse.Namespace], Awaitable[int]]


def run(args: argparse.Namespace, action: Action) -> int:
    """Run an action against the server that the options choose; its result is the exit code."""
    return asyncio.run(_run(args, action))


async def _run(args: argparse.Namespace, action: Action) -> int:
    config = options.client_config(args)
    transport = Transport(
        config,
        timeout_s=args.request_timeout,
        user_agent="orchctl",
        headers=options.impersonation_headers(args),
    )
    namespace = args.namespace or config.namespace or "default"
    try:
        return await action(Api(transport, namespace=namespace, verbosity=args.verbosity), args)
    finally:
        await transport.close()


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe=":", errors="surrogateescape")  # argv may hold any bytes


def _warnings(headers: Mapping[str, str]) -> list[str]:
    """The texts of `Warning: 299 - "text"` headers."""
    quoted = re.findall(r'"((?:\\.|[^"\\])*)"', headers.get("Warning", ""))
    return [one_line(re.sub(r"\\(.)", r"\1", text)) for text in quoted]
