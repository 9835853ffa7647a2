"""The login manager over D-Bus: delays a shutdown of the machine and signals its begin.

The only user of dbus-fast, imported on demand. Every failure is a LogindError.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from orch.component.process.atomic_file import replace_file

_LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
_UNITS = "org.freedesktop.systemd1"
_SYSTEMD = (_UNITS, "/org/freedesktop/systemd1", f"{_UNITS}.Manager")
_BUS = ("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus")
_PROPERTIES = "org.freedesktop.DBus.Properties"
DROP_IN = Path("/etc/systemd/logind.conf.d/99-nodeagent.conf")
_CALL_S = 10.0
_SIGHUP = 1


class LogindError(Exception):
    """The login manager is absent, refuses, or disconnected; the text says which."""


class Logind:
    """A connection to the system bus; `signals` yields True when a shutdown begins."""

    def __init__(self, drop_in: Path = DROP_IN) -> None:
        self.signals: asyncio.Queue[bool] = asyncio.Queue()
        self._drop_in = drop_in
        self._bus: Any = None

    async def connect(self) -> None:
        """Connect to the bus and subscribe to the shutdown signal."""
        from dbus_fast import BusType, DBusFastError
        from dbus_fast.aio import MessageBus

        try:
            self._bus = await MessageBus(bus_type=BusType.SYSTEM, negotiate_unix_fd=True).connect()
        except (OSError, DBusFastError) as error:
            raise LogindError(f"the system bus does not answer: {error}") from error
        self._bus.add_message_handler(self._on_message)
        rule = f"type='signal',interface='{_LOGIN[2]}',member='PrepareForShutdown'"
        await self._call(_BUS, "AddMatch", "s", [rule])

    async def longest_delay_s(self) -> float:
        """How long an inhibitor may delay a shutdown."""
        target = (_LOGIN[0], _LOGIN[1], _PROPERTIES)
        answer = await self._call(target, "Get", "ss", [_LOGIN[2], "InhibitDelayMaxUSec"])
        return int(answer.body[0].value) / 1e6

    async def raise_delay(self, seconds: int) -> None:
        """Configure a longer delay with a drop-in and reload the login manager."""
        text = (
            f"# Written by nodeagent: shutdownGracePeriod\n[Login]\nInhibitDelayMaxSec={seconds}\n"
        )
        try:
            await asyncio.to_thread(_write, self._drop_in, text)
        except OSError as error:
            raise LogindError(f"cannot write {self._drop_in}: {error.strerror}") from error
        await self._call(_SYSTEMD, "KillUnit", "ssi", ["systemd-logind.service", "all", _SIGHUP])

    async def inhibit(self) -> int:
        """Return a descriptor that delays shutdowns until it is closed."""
        arguments = ["shutdown", "nodeagent", "ends the pods of this node", "delay"]
        answer = await self._call(_LOGIN, "Inhibit", "ssss", arguments)
        return int(answer.unix_fds[0])

    async def lost(self) -> None:
        """Wait until the bus disconnects."""
        await self._bus.wait_for_disconnect()

    def close(self) -> None:
        if self._bus is not None:
            self._bus.disconnect()
            self._bus = None

    async def _call(
        self, target: tuple[str, str, str], member: str, signature: str, body: list[Any]
    ) -> Any:
        from dbus_fast import DBusFastError, Message, MessageType

        message = Message(*target, member, signature=signature, body=body)
        try:
            async with asyncio.timeout(_CALL_S):
                answer = await self._bus.call(message)
        except (OSError, EOFError, TimeoutError, DBusFastError) as error:
            raise LogindError(f"{member}: {error or 'no answer'}") from error
        if answer.message_type is MessageType.ERROR:
            raise LogindError(f"{member}: {' '.join(map(str, answer.body))}")
        return answer

    def _on_message(self, message: Any) -> None:
        if message.interface == _LOGIN[2] and message.member == "PrepareForShutdown":
            self.signals.put_nowait(bool(message.body[0]))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode(), mode=0o644)
