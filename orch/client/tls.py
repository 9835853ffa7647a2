"""The client's TLS context from a ClientConfig: trusted authorities and client certificate."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from orch.client.kubeconfig import ClientConfig
from orch.component import tls
from orch.component.certificates import end_of_file, expiry
from orch.component.process.daemon import SetupError


def client_context(config: ClientConfig) -> ssl.SSLContext:
    """TLS 1.2 or newer, verifying against the config's authority (by default the system's).

    SetupError names the part of the configuration that cannot be used.
    """
    context = tls.client_context()
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        _trust(context, config)
    if config.cert_data or config.cert_file:
        _present(context, config)
    return context


def certificate_end(config: ClientConfig) -> datetime | None:
    """When the client certificate expires; None without one that can be read."""
    if not config.cert_data:
        return end_of_file(config.cert_file)
    try:
        return expiry(config.cert_data)
    except ValueError:
        return None


def _trust(context: ssl.SSLContext, config: ClientConfig) -> None:
    try:
        if config.ca_data:
            context.load_verify_locations(cadata=config.ca_data.decode("ascii"))
        elif config.ca_file:
            context.load_verify_locations(cafile=config.ca_file)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        shown = "certificate-authority-data" if config.ca_data else config.ca_file
        raise SetupError(f"cannot use the authority {shown}: {_cause(error)}") from error


def _present(context: ssl.SSLContext, config: ClientConfig) -> None:
    shown = config.cert_file if not config.cert_data else "client-certificate-data"
    try:
        with (
            _path(config.cert_data, config.cert_file) as cert,
            _path(config.key_data, config.key_file) as key,
        ):
            context.load_cert_chain(cert, key or None, password=tls.refuse_password)
    except (OSError, ValueError) as error:
        raise SetupError(
            f"cannot use the client certificate {shown} with its key: {_cause(error)}"
        ) from error


@contextmanager
def _path(data: bytes, path: str) -> Iterator[str]:
    """A path for data in memory: OpenSSL reads only files, and a key must not touch the disk."""
    if not data:
        yield path
        return
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _cause(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it holds no PEM data").replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
