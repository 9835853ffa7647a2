"""TLS kept as its files are: a new certificate or CA counts without a restart.

Files are compared by content, so that a link that points elsewhere is noticed too. What cannot be
used (half a pair, no PEM) is tried again with every look and said once per cause; until then a
listener or client keeps what it has.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from orch.component.daemon import SetupError

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
_MAX_FILE_BYTES = 4 * 1024 * 1024


class Renewable(Protocol):
    """A listener, or a client, by its name in the log."""

    name: str

    def renew(self, context: ssl.SSLContext, *, end_connections: bool) -> None: ...


class TlsFiles:
    """Certificate and CA files, with what was in them when this was made.

    Make it, which reads them, before the first context is: then no change between is missed.
    """

    def __init__(self, files: Sequence[str], client_ca_file: str | None = None) -> None:
        self._files = tuple(files)
        self._ca_files = (client_ca_file,) if client_ca_file else ()
        self.seen = self.look()

    def look(self) -> tuple[bytes, bytes]:
        """Digests of what is in the certificate files and in the CA's."""
        return _digest(self._files), _digest(self._ca_files)


class TlsRenewal:
    """`step` looks at the files once; `make` builds the context that they ask for.

    A client CA that changed also ends the connections that were verified by the one before.
    `words` name the certificate and the CA.
    """

    def __init__(
        self,
        user: Renewable,
        make: Callable[[], ssl.SSLContext],
        files: TlsFiles,
        *,
        words: tuple[str, str] = ("serving certificate", "client CA"),
    ) -> None:
        self.renewals = 0
        self._user = user
        self._words = words
        self._make = make
        self._files = files
        self._used = files.seen
        self._causes: set[str] = set()  # why those of now cannot be used, as was said

    async def step(self) -> None:
        """Renew when a file is another than it was when last used, or at the start."""
        seen = await asyncio.to_thread(self._files.look)
        if seen == self._used:
            self._causes.clear()
            return
        try:
            context = await asyncio.to_thread(self._make)
        except SetupError as error:
            self._say(str(error))
            return
        ca_changed = self._used[1] != seen[1]
        self._used = seen
        self._causes.clear()
        self._user.renew(context, end_connections=ca_changed)
        self.renewals += 1
        log.info("%s uses its new %s", self._user.name, self._words[ca_changed])

    def _say(self, cause: str) -> None:
        if cause not in self._causes:
            self._causes.add(cause)
            log.error("%s keeps its TLS files of before: %s", self._user.name, cause)


def _digest(files: Sequence[str]) -> bytes:
    digest = hashlib.sha256()
    for path in files:
        try:
            with Path(path).open("rb") as file:
                digest.update(file.read(_MAX_FILE_BYTES))
        except OSError as error:
            digest.update(f"{error.errno}".encode())
        digest.update(b"\0")
    return digest.digest()
