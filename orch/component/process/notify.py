"""Messages to systemd (`sd_notify`): readiness, keep-alives, status. The one door to sdnotify.

A program continues when systemd does not receive: the failure is logged once per cause, and a send
never blocks the loop. Without NOTIFY_SOCKET everything is a no-op.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

import sdnotify

from orch.component.process.daemon import SetupError
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

_DISCOURAGED_S = 600.0  # WatchdogSec above this makes the watchdog slower than its own checks


class Notifier:
    """Sends one program's messages to the service manager."""

    def __init__(self, address: str) -> None:
        self._address = address
        # `@` is how an abstract socket is written
        self._target = f"\0{address[1:]}" if address.startswith("@") else address
        self._outage = OnceLog(log, logging.ERROR)

    @classmethod
    def from_environment(cls) -> Notifier:
        """The notifier of this process; silent when NOTIFY_SOCKET is unset."""
        return cls(os.environ.get("NOTIFY_SOCKET", ""))

    @property
    def enabled(self) -> bool:
        return bool(self._address)

    def ready(self, status: str = "") -> None:
        self._send("READY=1", *([f"STATUS={_one_line(status)}"] if status else []))

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        self._send(f"STATUS={_one_line(text)}")

    def reloading(self) -> None:
        """Announce a reload; `ready` ends it."""
        usec = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send("RELOADING=1", f"MONOTONIC_USEC={usec}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, *assignments: str) -> None:
        if not self.enabled:
            return
        # A fresh connection per message survives a restart of the manager's socket.
        sender = _Sender()
        try:
            sender.socket.connect(self._target)
            # The library encodes as Latin-1; the protocol is UTF-8.
            sender.notify("\n".join(assignments).encode().decode("latin-1"))
        except OSError as error:
            cause = error.strerror or str(error)
            text = "cannot send %s to systemd at NOTIFY_SOCKET %s: %s"
            self._outage.failed(text, assignments[0], self._address, cause, cause=cause)
        else:
            self._outage.recovered()
        finally:
            sender.socket.close()


class _Sender(sdnotify.SystemdNotifier):  # type: ignore[misc]
    """The library's sender on a socket that never blocks, with its errors raised."""

    def __init__(self) -> None:
        self.debug = True
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setblocking(False)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def watchdog_interval_s(environ: Mapping[str, str], pid: int) -> float | None:
    """Seconds between keep-alives: half of WATCHDOG_USEC; None when the watchdog is off.

    Off means unset, zero, or for another process. SetupError for a text that is no number and for
    less than 1 s.
    """
    text = environ.get("WATCHDOG_USEC", "")
    if not text:
        return None
    usec = _whole_number("WATCHDOG_USEC", text)
    owner = environ.get("WATCHDOG_PID", "")
    if owner and _whole_number("WATCHDOG_PID", owner) != pid:
        return None
    if usec == 0:
        return None
    if usec < 1_000_000:
        raise SetupError(
            f"WatchdogSec of {usec / 1e6:g} s (WATCHDOG_USEC={text}) is too short:"
            " set it to at least 1 s (15 s is a good value), or to 0 to switch the watchdog off"
        )
    if usec > _DISCOURAGED_S * 1e6:
        log.warning("WatchdogSec of %g s is above 10 minutes and is discouraged", usec / 1e6)
    return usec / 2e6


def _whole_number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise SetupError(f"{name}={text!r} in the environment is not a whole number")
    return int(text)
