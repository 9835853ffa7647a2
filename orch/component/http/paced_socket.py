"""A socket below TLS whose bytes are decrypted in the intake's time, as what is in them is parsed.

A record costs about as much with one byte in it as with a thousand, in the handshake, too: without
a bound a turn of the loop would take as long as all records that all connections have sent. Knows
neither HTTP nor what is encrypted.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable
from typing import Any

from orch.component.http.intake import Intake

SLICE_BYTES = 4096  # decrypted in one go: 178 records of a byte, which take some 0.2 ms
SERVER_BYTES = 16_384  # likewise of a server's large records: all that is read at once


class PacedSocket(asyncio.BufferedProtocol):
    """To TLS the transport of the socket, to which it is the protocol in front of TLS.

    `payer` shares the time of one owner; `intake_for` is asked, with the number of bytes, whose
    time a connection takes: None for as much as it likes. So much of large records is decrypted in
    one go as `large_bytes` says. Until `open`, no more is read than `opening_bytes` and one buffer.
    """

    _start_tls_compatible = True

    def __init__(
        self,
        transport: asyncio.Transport,
        payer: Callable[[], object],
        intake_for: Callable[[int], Intake | None],
        *,
        large_bytes: int = SLICE_BYTES,
        opening_bytes: float = math.inf,
    ) -> None:
        self._transport = transport
        self._payer = payer
        self._intake_for = intake_for
        self._large_bytes = large_bytes
        self._opening_bytes = opening_bytes
        self._tls: asyncio.BufferedProtocol  # the first thing that TLS sets
        self._fresh = 0  # bytes in the buffer of TLS
        self._waiting = b""  # for the intake
        self._is_taken = False  # by an intake
        self._is_held = False  # by it
        self._is_wanted = True  # by TLS: that the socket is read

    def __getattr__(self, name: str) -> Any:
        """All else of the transport."""
        return getattr(self._transport, name)

    # ---- what TLS asks of its transport

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.BufferedProtocol)  # noqa: S101 - asyncio's TLS is
        self._tls = protocol
        self._transport.set_protocol(self)

    def write(self, data: bytes) -> None:
        """TLS hears one turn of the loop late that the socket is lost, and asyncio would log each
        answer that is written until then.
        """
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        self._is_wanted = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_wanted = True
        self._read_on()

    def _read_on(self) -> None:
        if self._is_wanted and not self._is_held and self._opening_bytes > 0:
            self._transport.resume_reading()

    def open(self) -> None:
        """The handshake is over."""
        self._opening_bytes = math.inf
        self._read_on()

    # ---- what the socket has

    def get_buffer(self, sizehint: int) -> Any:
        return self._tls.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._opening_bytes -= nbytes
        if self._opening_bytes <= 0:
            self._transport.pause_reading()
        intake = None if self._is_taken else self._intake_for(nbytes)
        if intake is None and not self._is_taken:
            self._tls.buffer_updated(nbytes)
            return
        if self._is_taken or nbytes > SLICE_BYTES:
            self._waiting += bytes(memoryview(self._tls.get_buffer(-1))[:nbytes])
        else:
            self._fresh = nbytes
        if self._is_taken:
            self.hold()  # TLS asked for more
        elif intake is not None:
            self._is_taken = True
            intake.take(self)

    def eof_received(self) -> bool | None:
        return self._tls.eof_received()

    def pause_writing(self) -> None:
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        self._tls.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fresh, self._waiting = 0, b""
        self._tls.connection_lost(exc)

    # ---- what the intake asks

    @property
    def payer(self) -> object:
        return self._payer()

    def parse_slice(self) -> bool:
        """Decrypt the next bytes; whether there are more."""
        size, self._fresh = self._fresh, 0
        if not size and self._waiting:
            data = self._waiting[: self._large_bytes]
            if len(data) > SLICE_BYTES and _are_small(data):
                data = data[:SLICE_BYTES]
            size = len(data)
            self._waiting = self._waiting[size:]
            memoryview(self._tls.get_buffer(-1))[:size] = data
        if size:
            self._tls.buffer_updated(size)
        return bool(self._waiting)

    def hold(self) -> None:
        self._is_held = True
        self._keep_fresh()
        self._transport.pause_reading()

    def release(self) -> None:
        self._is_taken = False
        if self._is_held:
            self._is_held = False
            self._read_on()

    def _keep_fresh(self) -> None:
        """The buffer is that of TLS, and may be another's by the time of the next slice."""
        if self._fresh:
            self._waiting += bytes(memoryview(self._tls.get_buffer(-1))[: self._fresh])
            self._fresh = 0


def _are_small(records: bytes) -> bool:
    """A record's head has two bytes that are 3; of what is encrypted one in 256 is. With fewer than
    one in a hundred, 16 KiB have 82 records at most, which take 0.2 ms.
    """
    return records.count(3) > len(records) // 100


async def begin_tls(
    transport: asyncio.Transport,
    protocol: asyncio.Protocol,
    context: ssl.SSLContext,
    *,
    server: str,
    address: str,
    intake: Intake | None,
) -> asyncio.Transport:
    """The protocol's transport towards a server of that name; what the server sends is decrypted in
    the time of its address. OSError; it is the caller's to close what is left.
    """
    paced: Any = PacedSocket(transport, lambda: address, lambda _: intake, large_bytes=SERVER_BYTES)
    loop = asyncio.get_running_loop()
    secured = await loop.start_tls(paced, protocol, context, server_hostname=server)
    if secured is None:
        raise ConnectionError("it ended the connection")
    protocol.connection_made(secured)
    return secured
