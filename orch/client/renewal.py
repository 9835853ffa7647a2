"""Has clients dial anew when their certificate, key or authority is replaced in its file.

Files that do not fit together are left alone until they do; meanwhile open connections go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from orch.client import tls
from orch.client.transport import Transport
from orch.component.process.daemon import SetupError
from orch.component.process.once_log import OnceLog
from orch.component.tls import TlsFiles

log = logging.getLogger(__name__)


class ClientRenewal:
    """`transports` share one configuration. Constructing it reads their files."""

    def __init__(self, transports: Sequence[Transport]) -> None:
        self._transports = tuple(transports)
        self._config = config = transports[0].config
        self._files = TlsFiles((config.cert_file, config.key_file), config.ca_file or None)
        self._used = self._files.seen
        self._unusable = OnceLog(log, logging.ERROR)

    async def step(self) -> None:
        """Look at the files once."""
        seen = await asyncio.to_thread(self._files.look)
        if seen == self._used:
            return
        try:
            await asyncio.to_thread(tls.client_context, self._config)
        except SetupError as error:
            self._unusable.failed("the client keeps its previous certificate: %s", error)
            return
        self._used = seen
        self._unusable.recovered()
        for transport in self._transports:
            await transport.reset()
        log.info("the client of %s uses its new certificate", self._config.server)


def renewal_of(transports: Sequence[Transport]) -> ClientRenewal | None:
    """None where nothing comes from files. Blocking I/O."""
    config = transports[0].config if transports else None
    return ClientRenewal(transports) if config and (config.cert_file or config.ca_file) else None
