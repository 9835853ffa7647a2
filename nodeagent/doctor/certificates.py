"""Facts about the agent's certificates: do they exist, match their keys, and when they expire.

`checks` judges them. Blocking I/O.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.doctor import gather
from nodeagent.doctor.checks import CertificateFacts
from orch.client.kubeconfig import ClientConfig
from orch.component.certificates import expiry


def read_certificates(
    options: Options, config: NodeAgentConfiguration, api: ClientConfig | None
) -> Iterator[CertificateFacts]:
    """The serving pair, the CAs, and the credential for the API server."""
    certificate, key = options.certificate_files(config)
    if config.tlsCertFile or Path(certificate).exists():
        yield _pair("serving", certificate, key)
    else:
        yield CertificateFacts("serving", certificate)
    if ca_file := config.authentication.x509.clientCAFile:
        yield _certificate("client CA", ca_file)
    if api and api.ca_file:
        yield _certificate("API server CA", api.ca_file)
    if api and api.cert_file and api.key_file:
        yield _pair("API client", api.cert_file, api.key_file)
    elif api and api.cert_data:
        yield CertificateFacts("API client", options.kubeconfig or "", expiry(api.cert_data))


def _pair(role: str, cert_file: str, key_file: str) -> CertificateFacts:
    exposed = key_file if gather.is_open_to_others(key_file, gather.READ) else ""
    certificate = _certificate(role, cert_file)
    problem = certificate.problem or _pair_problem(cert_file, key_file)
    return CertificateFacts(role, cert_file, certificate.not_after, problem, exposed)


def _certificate(role: str, path: str) -> CertificateFacts:
    try:
        return CertificateFacts(role, path, expiry(Path(path).read_bytes()))
    except OSError as error:
        return CertificateFacts(role, path, problem=error.strerror or str(error))
    except ValueError:
        return CertificateFacts(role, path, problem="it contains no PEM certificate")


def _pair_problem(cert_file: str, key_file: str) -> str:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"the key {key_file} does not match it"
        return f"the key {key_file} contains no usable PEM key"
    except OSError as error:
        return f"the key {key_file}: {error.strerror or error}"
    except ValueError as error:
        return f"the key {key_file}: {error}"
    return ""


def _no_password() -> str:
    raise ValueError("it is encrypted: decrypt it first")
