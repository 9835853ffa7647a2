"""The agent's ports: the secure one and its TLS, the health port, the optional read-only port.

Certificate, key and client CA are reloaded when they change. The plain ports serve no secrets and
no checkpoints. Must not know the routes (`server`).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodeagent import server
from nodeagent.config.options import OWN_CERTIFICATE, Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.server import Services
from nodeagent.stats.host.machine import read_host_facts
from orch.component.http.httpd import HttpServer, server_context
from orch.component.process import clock
from orch.component.process.atomic_file import replace_file
from orch.component.process.daemon import SetupError
from orch.component.tls import TlsFiles, TlsRenewal

MAX_CONNECTIONS = 1024  # of TLS, at some 42 kB each


@dataclass(frozen=True, slots=True)
class Tls:
    """A context, and the state of its files from before it was created."""

    files: TlsFiles
    context: ssl.SSLContext


@dataclass(frozen=True, slots=True)
class Listeners:
    """The ports, started and stopped together; `renewal.step` reloads changed TLS files."""

    secure: HttpServer
    plain: tuple[HttpServer, ...]
    renewal: TlsRenewal

    async def start(self) -> int:
        """Listen on all ports and return the secure one; SetupError names a port in use."""
        port = await self.secure.start()
        for listener in self.plain:
            await listener.start()
        return port

    async def stop(self) -> None:
        for listener in (self.secure, *self.plain):
            await listener.stop()


def build_listeners(
    options: Options, config: NodeAgentConfiguration, services: Services, tls: Tls
) -> Listeners:
    """The configured ports; `tls` comes from `read_tls`."""
    secure = HttpServer(
        server.secure_app(services),
        host=config.address,
        port=config.port,
        ssl_context=tls.context,
        name="nodeagent",
        max_connections=MAX_CONNECTIONS,
    )
    renewal = TlsRenewal(secure, lambda: tls_context(options, config), tls.files)
    return Listeners(secure, tuple(_plain(config, services)), renewal)


def read_tls(options: Options, config: NodeAgentConfiguration) -> Tls:
    """The initial TLS of the secure port, self-signed unless a certificate is configured."""
    _ensure_certificate(options, config)
    pair = options.certificate_files(config)
    files = TlsFiles(pair, config.authentication.x509.clientCAFile)
    return Tls(files, tls_context(options, config))


def tls_context(options: Options, config: NodeAgentConfiguration) -> ssl.SSLContext:
    """A TLS context from the present files."""
    _ensure_certificate(options, config)
    return server_context(
        *options.certificate_files(config),
        client_ca_file=config.authentication.x509.clientCAFile or None,
        min_version=config.tlsMinVersion,
        cipher_suites=config.tlsCipherSuites,
    )


def _ensure_certificate(options: Options, config: NodeAgentConfiguration) -> None:
    """Create the self-signed certificate, unless it is usable or another is configured."""
    if config.tlsCertFile or (config.serverTLSBootstrap and Path(options.serving_file).exists()):
        return
    from orch.component import pki  # heavy

    hosts = [options.hostname_override or read_host_facts().hostname, "localhost", "127.0.0.1"]
    if options.node_ip:
        hosts.append(options.node_ip)
    try:
        pair = pki.self_signed(Path(options.cert_dir), OWN_CERTIFICATE, hosts, now=clock.utc_now())
        if config.serverTLSBootstrap:  # until the cluster issues another
            pem = b"".join(Path(file).read_bytes() for file in (pair.cert_file, pair.key_file))
            replace_file(options.serving_file, pem)
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        raise SetupError(
            f"cannot write the serving certificate below {options.cert_dir}: {cause};"
            " correct that, or choose another --cert-dir"
        ) from error


def _plain(config: NodeAgentConfiguration, services: Services) -> Iterator[HttpServer]:
    if config.healthzPort:
        app, host = server.healthz_app(services.health), config.healthzBindAddress
        yield HttpServer(app, host=host, port=config.healthzPort, name="healthz")
    if config.readOnlyPort:
        app, host = server.read_only_app(services), config.address
        yield HttpServer(app, host=host, port=config.readOnlyPort, name="read-only")
