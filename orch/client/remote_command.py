"""A command in a container as its client has it: channels over a WebSocket, and how it ended.

Speaks the sub-protocols v5 and v4. Knows neither terminals nor where the streams come from.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from orch.client.answers import TransportError
from orch.wire import raw
from orch.wire.errors import ApiError

if TYPE_CHECKING:
    import aiohttp

_V5 = "v5.channel.k8s.io"
PROTOCOLS = (_V5, "v4.channel.k8s.io")
STDOUT, STDERR = 1, 2
_STDIN, _ERROR, _RESIZE, _CLOSE = 0, 3, 4, 255
_UNKNOWN_CODE = 1
_CODES = {str(code): code for code in range(1, 256)}  # more do not fit: 256 would be success


class RemoteCommand:
    """A command that runs; `output` is to be read to its end, then `exit_code` is known."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._status: Mapping[str, Any] | None = None

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """STDOUT or STDERR, and what the command wrote there."""
        async for message in self._socket:
            data = message.data if isinstance(message.data, bytes) else b""
            if data[:1] == bytes((_ERROR,)):
                self._status = _status(data[1:])
            elif data and data[0] in (STDOUT, STDERR):
                yield data[0], data[1:]

    def exit_code(self) -> int:
        """ApiError when the command did not run, TransportError when its end is not known."""
        if self._status is None:
            raise TransportError("the connection ended before the command: its outcome is unknown")
        if self._status.get("status") == "Success":
            return 0
        if self._status.get("reason") != "NonZeroExitCode":
            raise ApiError.from_status({"kind": "Status", **self._status}, code=500)
        for cause in raw.records(self._status, "details", "causes"):
            if raw.text(cause, "reason") == "ExitCode":
                return _CODES.get(raw.text(cause, "message"), _UNKNOWN_CODE)
        return _UNKNOWN_CODE

    async def send_input(self, data: bytes) -> None:
        """Wait until it is on its way; b"" is the end, which v4 cannot tell. ConnectionError."""
        if data:
            await self._socket.send_bytes(bytes((_STDIN,)) + data)
        elif self._socket.protocol == _V5:
            await self._socket.send_bytes(bytes((_CLOSE, _STDIN)))

    async def resize(self, columns: int, lines: int) -> None:
        """Tell the size of the window; an end of the connection is noticed by who reads."""
        body = orjson.dumps({"Width": columns, "Height": lines})
        with contextlib.suppress(ConnectionError):
            await self._socket.send_bytes(bytes((_RESIZE,)) + body)


def _status(data: bytes) -> Mapping[str, Any]:
    try:
        status = orjson.loads(data)
    except ValueError as error:
        raise TransportError(f"the end of the command is not told in JSON: {error}") from error
    return status if isinstance(status, dict) else {}
