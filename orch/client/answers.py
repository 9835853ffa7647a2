"""Responses of a server, whole or streamed, and the error when there is none.

The only module that translates aiohttp's exceptions.
"""

from __future__ import annotations

import asyncio
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

MAX_LINE_BYTES = 16 * 2**20
MAX_BYTES = 256 * 2**20  # of a whole response
_CHUNKS = 1_000  # of a whole answer; beyond them each must have _CHUNK_BYTES on average,
_CHUNK_BYTES = 16  # as its framing costs more than its bytes
_QUOTED_BYTES = 4096  # of a body that is not a Status: enough for what CRIU says


class TransportError(Exception):
    """No usable response: the text names the server and the cause."""


class AnswerTooLarge(TransportError):
    """The server answers with more than is read at once."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response of any status; header names are case-insensitive."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class Stream:
    """A response that is still arriving: iterate it for lines, or its `chunks()` for bytes.

    Waiting for a chunk, or for a whole line, ends after `silence_s` (0: never). The deadlines are
    its own: aiohttp forgets a reader whose connection is closed on this side.
    """

    def __init__(self, response: aiohttp.ClientResponse, server: str, silence_s: float) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._server = server
        self._silence_s = silence_s

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Bytes as they arrive; TransportError when the response breaks off."""
        while chunk := await self._next(self._silence_s, self._until_s(self._silence_s)):
            yield chunk

    async def beginning(self, limit_bytes: int, *, within_s: float) -> bytes:
        """The rest of the response, or its first bytes; TransportError after `within_s`."""
        body, until_s = bytearray(), self._until_s(within_s)
        while len(body) < limit_bytes and (chunk := await self._next(within_s, until_s)):
            body += chunk
        return bytes(body[:limit_bytes])

    def break_off(self, why: str) -> None:
        """Whoever reads gets a TransportError."""
        import aiohttp

        self._response.content.set_exception(aiohttp.ClientConnectionError(why))

    async def _next(self, limit_s: float, until_s: float | None) -> bytes:
        """What has arrived until a moment `limit_s` after some beginning; b"" at the end."""
        try:
            async with asyncio.timeout_at(until_s):
                return await self._response.content.readany()
        except failures() as error:
            raise explain(error, self._server, limit_s) from error

    def _until_s(self, limit_s: float) -> float | None:
        return asyncio.get_running_loop().time() + limit_s if limit_s else None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.lines()

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """Lines without their newline; the last may lack it."""
        silence_s = self._silence_s
        rest, until_s = bytearray(), self._until_s(silence_s)
        while chunk := await self._next(silence_s, until_s):
            rest += chunk
            if b"\n" in chunk:
                *lines, last = bytes(rest).split(b"\n")
                for line in lines:
                    yield line
                rest, until_s = bytearray(last), self._until_s(silence_s)
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


async def whole(
    response: aiohttp.ClientResponse, server: str, most_bytes: int | None = None
) -> bytes:
    """The body; AnswerTooLarge beyond `most_bytes`, else beyond MAX_BYTES."""
    most_bytes = MAX_BYTES if most_bytes is None else most_bytes
    body = await beginning(response, most_bytes + 1)
    if len(body) > most_bytes:
        raise AnswerTooLarge(f"{server} answered with more than {most_bytes // 2**20} MiB")
    return body


async def beginning(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """The body, or its first `limit_bytes`; aiohttp's read(n) returns only what has arrived."""
    body, pieces = bytearray(), 0
    async for piece, is_whole in response.content.iter_chunks():
        body += piece
        pieces += is_whole
        # An answer without a body has empty pieces for ever: all of them share a reader.
        if len(body) >= limit_bytes or (not piece and response.content.at_eof()):
            break
        if pieces > _CHUNKS + len(body) // _CHUNK_BYTES:
            raise TransportError("the chunks of the answer are too small")
    del body[limit_bytes:]
    return bytes(body)


def failures() -> tuple[type[Exception], ...]:
    """The exceptions of a call to the server without a usable response."""
    import aiohttp

    return (aiohttp.ClientError, OSError, SetupError, ValueError)


def explain(error: Exception, server: str, limit_s: float) -> TransportError:
    """One of `failures` translated; `limit_s` is the timeout behind a TimeoutError."""
    return TransportError(f"cannot reach {server}: {_cause(error, limit_s)}")


def may_be_refused_certificate(error: Exception) -> bool:
    """Whether a server that does not trust the client certificate may have caused this: it sends an
    alert, or just closes the connection.
    """
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorError):
        return isinstance(error, aiohttp.ClientConnectorSSLError)
    return isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)


_ALERTS = {
    "ALERT_CERTIFICATE_EXPIRED": "it has expired",
    "ALERT_UNKNOWN_CA": "the server does not know its authority",
    "ALERT_BAD_CERTIFICATE": "the server cannot use it",
    "ALERT_CERTIFICATE_UNKNOWN": "the server cannot use it",
    "ALERT_UNSUPPORTED_CERTIFICATE": "it is not for clients",
}


def _cause(error: Exception, limit_s: float) -> str:
    import aiohttp

    if isinstance(error, TimeoutError):
        return f"the server did not answer within {limit_s:g} s"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the host name does not resolve ({error.os_error.strerror or error.os_error})"
    if tls := _tls_error(error):
        return _cause_of_tls(tls)
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


def _tls_error(error: Exception) -> Exception | None:
    """What TLS says; an alert after the handshake is the cause of a ClientOSError."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    within = error.__cause__ if isinstance(error, aiohttp.ClientError) else None
    return next((found for found in (within, error) if isinstance(found, ssl.SSLError)), None)


def _cause_of_tls(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message.rstrip('.')}"
    reason = getattr(error, "reason", None) or ""
    for alert, why in _ALERTS.items():
        if reason.endswith(alert):
            return f"the server refuses the client certificate: {why}"
    return f"TLS failed: {(reason or str(error)).replace('_', ' ').lower()}"
