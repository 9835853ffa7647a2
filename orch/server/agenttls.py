"""What the server shows node agents and verifies them by, as its files are."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from orch.component import tls
from orch.component.daemon import SetupError
from orch.component.tlsrenewal import Renewable, TlsFiles, TlsRenewal


@dataclass(frozen=True, slots=True)
class AgentTls:
    """`ca_file` None: agents cannot be verified, and are not called."""

    ca_file: str | None
    cert_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext | None:
        """SetupError names the file that cannot be used."""
        return None if self.ca_file is None else self._read(self.ca_file)

    def files(self) -> TlsFiles:
        """As they are now, before the context is made of them."""
        pair = [file for file in (self.cert_file, self.key_file) if file]
        return TlsFiles(pair, self.ca_file)

    def renewal(self, user: Renewable, files: TlsFiles) -> TlsRenewal | None:
        """What looks at the files for `user`; None where no agent is called."""
        if (ca_file := self.ca_file) is None:
            return None
        words = "client certificate", "node agent CA"
        return TlsRenewal(user, lambda: self._read(ca_file), files, words=words)

    def _read(self, ca_file: str) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ValueError) as error:
            raise SetupError(f"cannot use the node agent CA {ca_file}: {error}") from error
        if self.cert_file and self.key_file:
            tls.load_certificate(context, self.cert_file, self.key_file)
        return context
