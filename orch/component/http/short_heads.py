"""A client's connections to servers that may mean harm: an answer has to come to its point.

aiohttp bounds the lines of a head and their number, but takes interim answers before it for as long
as they come, a quarter of a megabyte in one turn of the event loop. What is encrypted is decrypted
in an intake's time, which servers share by their addresses.
"""

from __future__ import annotations

import asyncio
from functools import partial
from ssl import CertificateError, SSLError
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

from orch.component.http import tcp
from orch.component.http.intake import Intake
from orch.component.http.paced_socket import begin_tls

HEAD_BYTES = 64 * 1024  # with the interim answers before it
_INTERIM_BYTES = HEAD_BYTES // 4  # what one of these counts as, beside its own bytes
_ENDLESS = "the answer does not begin: its head, or what comes before it, is too long"
_SLICE_BYTES = 1024  # parsed in one go, until the head is there


class ShortHeads(aiohttp.TCPConnector):
    """Cuts a connection whose answer does not begin within `HEAD_BYTES`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        loop = asyncio.get_running_loop()
        factory: Any = partial(_Connection, loop=loop)
        self._factory = factory
        self._intake = Intake(loop, fills_pauses=True)

    async def _wrap_create_connection(
        self, *factory: Any, **settings: Any
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        """Begin TLS apart, over a socket that is read in the intake's time."""
        context = settings.pop("ssl", None)
        name = settings.pop("server_hostname", None)
        if context is None:
            return await super()._wrap_create_connection(*factory, **settings)
        socket, _ = await super()._wrap_create_connection(asyncio.Protocol, **settings)
        address, (make,) = socket.get_extra_info("peername")[0], factory
        protocol: ResponseHandler = make()
        try:
            secured = await begin_tls(
                socket, protocol, context, server=name, address=address, intake=self._intake
            )
        except BaseException as error:
            tcp.abort(socket)
            key = settings["req"].connection_key
            if isinstance(error, CertificateError):
                raise aiohttp.ClientConnectorCertificateError(key, error) from error
            if isinstance(error, SSLError):
                raise aiohttp.ClientConnectorSSLError(key, error) from error
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise aiohttp.ClientConnectorError(key, error) from error
            raise
        return secured, protocol


class _Connection(ResponseHandler):
    _left = HEAD_BYTES
    _in_head = False

    def set_response_params(self, **params: Any) -> None:
        """A request begins."""
        self._left, self._in_head = HEAD_BYTES, True
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """A head is complete: that of the answer, or of one before it."""
        self._in_head = 100 <= data[0].code < 200 and data[0].code != 101
        self._left -= _INTERIM_BYTES
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        while data and self._in_head:
            piece, data = data[:_SLICE_BYTES], data[_SLICE_BYTES:]
            self._left -= len(piece)
            super().data_received(piece)
            if self._in_head and self._left < 0:
                self.abort()
                self.set_exception(aiohttp.ServerDisconnectedError(_ENDLESS))
                return
        super().data_received(data)
