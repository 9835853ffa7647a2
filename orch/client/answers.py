"""Responses of a server, whole or streamed, and the error when there is none.

The only module that translates aiohttp's exceptions.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from orch.component.process.daemon import SetupError
from orch.wire.errors import ApiError

if TYPE_CHECKING:
    import aiohttp

MAX_LINE_BYTES = 16 * 1024 * 1024
_QUOTED_BYTES = 300  # of a body that is not a Status: enough for a sentence


class TransportError(Exception):
    """No usable response: the text names the server and the cause."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response of any status; header names are case-insensitive."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Stream:
    """A response that is still arriving: iterate it for lines, or its `chunks()` for bytes."""

    def __init__(self, response: aiohttp.ClientResponse, server: str, silence_s: float) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._server = server
        self._silence_s = silence_s

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Bytes as they arrive; TransportError when the response breaks off."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except failures() as error:
            raise explain(error, self._server, self._silence_s) from error

    async def read(self) -> bytes:
        """The rest of the response."""
        return b"".join([chunk async for chunk in self.chunks()])

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.lines()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Lines without their newline; the last may lack it."""
        rest = bytearray()
        async for chunk in self.chunks():
            rest += chunk
            if b"\n" in chunk:
                *lines, last = bytes(rest).split(b"\n")
                for line in lines:
                    yield line
                rest = bytearray(last)
            elif len(rest) > MAX_LINE_BYTES:
                limit = MAX_LINE_BYTES // 2**20
                raise TransportError(f"{self._server} sent a line longer than {limit} MiB")
        if rest:
            yield bytes(rest)


def json_object(answer: Response, server: str) -> dict[str, Any]:
    """The JSON object in a response; TransportError for anything else."""
    try:
        data = orjson.loads(answer.body)
    except ValueError as error:
        raise TransportError(f"{server} answered what is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise TransportError(f"{server} answered what is not JSON: the answer is not an object")
    return data


def refusal(answer: Response) -> ApiError:
    """The error of a status of 300 and above; plain text (a node agent's) is quoted in it."""
    try:
        data = orjson.loads(answer.body)
    except ValueError:
        data = None
    error = ApiError.from_status(data, code=answer.status)
    text = answer.body[:_QUOTED_BYTES].decode(errors="replace").strip()
    if data is None and text and not text.startswith("<"):
        error.message = f"{error.message}: {text}"
    return error


async def beginning(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """The body, or its first `limit_bytes`; aiohttp's read(n) returns only what has arrived."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= limit_bytes:
            break
    return bytes(body[:limit_bytes])


def failures() -> tuple[type[Exception], ...]:
    """The exceptions of a call to the server without a usable response."""
    import aiohttp

    return (aiohttp.ClientError, OSError, SetupError, ValueError)


def explain(error: Exception, server: str, limit_s: float) -> TransportError:
    """One of `failures` translated; `limit_s` is the timeout behind a TimeoutError."""
    return TransportError(f"cannot reach {server}: {_cause(error, limit_s)}")


def _cause(error: Exception, limit_s: float) -> str:
    import aiohttp

    if isinstance(error, TimeoutError):
        return f"the server did not answer within {limit_s:g} s"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host name does not resolve ({error.os_error.strerror or error.os_error})"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _cause_of_tls(error.certificate_error)
    if isinstance(error, ssl.SSLError):
        return _cause_of_tls(error)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer broke off"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer is not HTTP ({error.message})"
    if isinstance(error, aiohttp.InvalidURL):
        return "the address is not a URL"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return " ".join(str(error).split()) or type(error).__name__


def _cause_of_tls(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message.rstrip('.')}"
    reason = getattr(error, "reason", None)
    return f"TLS failed: {(reason or str(error)).replace('_', ' ').lower()}"
