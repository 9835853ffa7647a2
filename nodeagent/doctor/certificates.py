"""The certificates the agent uses: are they there, do key and certificate fit, until when."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.doctor import gather
from nodeagent.doctor.checks import CertificateFacts
from orch.client.kubeconfig import ClientConfig

OWN_NAME = "nodeagent"  # of the certificate that the agent makes for itself


def read_certificates(
    options: Options, config: NodeAgentConfiguration, api: ClientConfig | None
) -> Iterator[CertificateFacts]:
    """The serving pair, the clients' CA, and what is shown to the API server."""
    if config.tlsCertFile:
        yield _pair("serving", config.tlsCertFile, config.tlsPrivateKeyFile)
    else:
        own = f"{options.cert_dir}/{OWN_NAME}"
        made = Path(f"{own}.crt").exists()
        yield (
            _pair("serving", f"{own}.crt", f"{own}.key")
            if made
            else CertificateFacts("serving", f"{own}.crt")
        )
    if ca_file := config.authentication.x509.clientCAFile:
        yield _alone("client CA", ca_file)
    if api and api.ca_file:
        yield _alone("API server CA", api.ca_file)
    if api and api.cert_file and api.key_file:
        yield _pair("API client", api.cert_file, api.key_file)
    elif api and api.cert_data:
        yield CertificateFacts("API client", options.kubeconfig or "", _end_of(api.cert_data))


def _pair(role: str, cert_file: str, key_file: str) -> CertificateFacts:
    exposed = key_file if gather.is_open_to_others(key_file, gather.READ) else ""
    alone = _alone(role, cert_file)
    problem = alone.problem or _pair_problem(cert_file, key_file)
    return CertificateFacts(role, cert_file, alone.not_after, problem, exposed)


def _alone(role: str, path: str) -> CertificateFacts:
    try:
        return CertificateFacts(role, path, _end_of(Path(path).read_bytes()))
    except OSError as error:
        return CertificateFacts(role, path, problem=error.strerror or str(error))
    except ValueError:
        return CertificateFacts(role, path, problem="it holds no PEM certificate")


def _pair_problem(cert_file: str, key_file: str) -> str:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert_file, key_file, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"the key {key_file} does not belong to it"
        return f"the key {key_file} holds no usable PEM key"
    except OSError as error:
        return f"the key {key_file}: {error.strerror or error}"
    except ValueError as error:
        return f"the key {key_file}: {error}"
    return ""


def _no_password() -> str:
    raise ValueError("it is encrypted: decrypt it first")


def _end_of(pem: bytes) -> datetime:
    """When the first certificate ends; ValueError when there is none."""
    from cryptography import x509  # 16 MiB that only this check needs

    return x509.load_pem_x509_certificate(pem).not_valid_after_utc
