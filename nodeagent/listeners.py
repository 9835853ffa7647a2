"""What the agent listens with: the secure port and its TLS, the health port, the read-only one.

Certificate, key and client CA are read again when they change. The plain ports carry no secret and
no checkpoint route: health for supervisors, and, where somebody switched it on, what only reads.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from nodeagent import server
from nodeagent.config.options import Options
from nodeagent.config.types import NodeAgentConfiguration
from nodeagent.server import Services
from nodeagent.stats.host.machine import read_host_facts
from orch.component.http.httpd import HttpServer, server_context
from orch.component.process import clock
from orch.component.tls import TlsFiles, TlsRenewal

MAX_CONNECTIONS = 1024  # of TLS, at some 42 kB each


@dataclass(frozen=True, slots=True)
class Tls:
    """A context, and the files as they were before it was made of them."""

    files: TlsFiles
    context: ssl.SSLContext


@dataclass(frozen=True, slots=True)
class Listeners:
    """The ports, started and stopped together; `renewal.step` keeps TLS as its files are."""

    secure: HttpServer
    plain: tuple[HttpServer, ...]
    renewal: TlsRenewal

    async def start(self) -> int:
        """Listen everywhere and return the secure port; SetupError names the one that is taken."""
        port = await self.secure.start()
        for one in self.plain:
            await one.start()
        return port

    async def stop(self) -> None:
        for one in (self.secure, *self.plain):
            await one.stop()


def build_listeners(
    options: Options,
    config: NodeAgentConfiguration,
    services: Services,
    tls: Tls,
) -> Listeners:
    """The ports that the configuration asks for; `tls` is `read_tls`'s."""
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
    """What the secure port begins with; makes the agent's own certificate when it has none."""
    if not config.tlsCertFile:
        _make_certificate(options)
    pair = certificate_files(options, config)
    files = TlsFiles(pair, config.authentication.x509.clientCAFile)
    return Tls(files, tls_context(options, config))


def tls_context(options: Options, config: NodeAgentConfiguration) -> ssl.SSLContext:
    """What the secure port serves with; makes the agent's own certificate when it has none."""
    if not config.tlsCertFile:
        _make_certificate(options)
    return server_context(
        *certificate_files(options, config),
        client_ca_file=config.authentication.x509.clientCAFile or None,
        min_version=config.tlsMinVersion,
        cipher_suites=config.tlsCipherSuites,
    )


def certificate_files(options: Options, config: NodeAgentConfiguration) -> tuple[str, str]:
    """Certificate and key: the configured ones, or the agent's own."""
    if config.tlsCertFile:
        return config.tlsCertFile, config.tlsPrivateKeyFile
    own = Path(options.cert_dir, "nodeagent")
    return f"{own}.crt", f"{own}.key"


def _make_certificate(options: Options) -> None:
    """One that is there and usable is kept."""
    from orch.component import pki  # heavy, and needed only here

    hosts = [options.hostname_override or read_host_facts().hostname, "localhost", "127.0.0.1"]
    if options.node_ip:
        hosts.append(options.node_ip)
    pki.self_signed(Path(options.cert_dir), "nodeagent", hosts, now=clock.utc_now())


def _plain(config: NodeAgentConfiguration, services: Services) -> list[HttpServer]:
    listeners = []
    if config.healthzPort:
        listeners.append(
            HttpServer(
                server.healthz_app(services.health),
                host=config.healthzBindAddress,
                port=config.healthzPort,
                name="healthz",
            )
        )
    if config.readOnlyPort:
        listeners.append(
            HttpServer(
                server.read_only_app(services),
                host=config.address,
                port=config.readOnlyPort,
                name="read-only",
            )
        )
    return listeners
