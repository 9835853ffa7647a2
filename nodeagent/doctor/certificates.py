"""The certificates that an agent uses, by its options and its kubeconfig. Blocking I/O."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from orch.client.kubeconfig import ClientConfig
from orch.component.certificates import expiry
from orch.component.diagnostics.certificate_findings import (
    CertificateFacts,
    read_certificate,
    read_pair,
)


def read_certificates(
    options: Options, config: NodeAgentConfiguration, api: ClientConfig | None
) -> Iterator[CertificateFacts]:
    """The serving pair, the CAs, and the credential for the API server."""
    certificate, key = options.certificate_files(config)
    if config.tlsCertFile or Path(certificate).exists():
        yield read_pair("serving", certificate, key)
    else:
        yield CertificateFacts("serving", certificate)
    if ca_file := config.authentication.x509.clientCAFile:
        yield read_certificate("client CA", ca_file)
    if api and api.ca_file:
        yield read_certificate("API server CA", api.ca_file)
    if api and api.cert_file and api.key_file:
        yield read_pair("API client", api.cert_file, api.key_file)
    elif api and api.cert_data:
        yield CertificateFacts("API client", options.kubeconfig or "", expiry(api.cert_data))
