"""The controller manager's pages: health is open to everyone, the rest to those allowed to read it.

The group in a verified client certificate decides: administrators see everything, the monitoring
group the paths that the role of the same name opens at the API server. Without a client CA nobody
can prove a group.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Protocol

from aiohttp import web

from orch.component.diagnostics.health import HealthChecks, SliMetrics
from orch.component.diagnostics.zpages import ZPages, configz
from orch.component.flags.features import Features
from orch.component.http import httpd
from orch.component.http.httpd import HttpServer
from orch.component.process import clock
from orch.component.tls import TlsFiles, TlsRenewal
from orch.lifecycle.decide.records import Settings
from orch.lifecycle.metrics import LifecycleMetrics
from orch.lifecycle.options import PROGRAM, Options
from orch.wire import errors
from orch.wire.names import GROUP_MASTERS, GROUP_MONITORING
from orch.wire.records.authentication import Identity

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_OPEN = ("/healthz", "/livez", "/readyz")
_MONITORED = ("/metrics", "/statusz", "/flagz")


class Pages(Protocol):
    """The sources of the pages."""

    checks: HealthChecks
    slis: SliMetrics
    metrics: LifecycleMetrics
    zpages: ZPages
    features: Features
    settings: Settings


def application(pages: Pages) -> web.Application:
    """Everything but the health endpoints requires authentication."""
    app = web.Application(middlewares=[httpd.text_errors, _guard])

    async def show_metrics(request: web.Request) -> web.Response:
        accept = request.headers.get("Accept", "")
        # On a thread: rendering reads files of /proc.
        body, content_type = await asyncio.to_thread(pages.metrics.registry.render, accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    app.router.add_routes(
        [
            *pages.checks.handlers(),
            web.get("/metrics", show_metrics),
            web.get("/metrics/slis", pages.slis.show),
            configz("controllermanagerconfig", lambda: asdict(pages.settings)),
            *pages.zpages.routes(pages.features),
        ]
    )
    return app


@web.middleware
async def _guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
    if not _is_below(request.path, _OPEN):
        identity = httpd.current_peer(request)
        if identity is None:
            raise errors.unauthorized()
        if not _may_read(identity, request):
            raise errors.forbidden(
                f"Forbidden (user={identity.name}, method={request.method}, path={request.path})\n"
            )
    return await handler(request)


def _may_read(identity: Identity, request: web.Request) -> bool:
    if GROUP_MASTERS in identity.groups:
        return True
    reads = request.method in ("GET", "HEAD") and _is_below(request.path, _MONITORED)
    return reads and GROUP_MONITORING in identity.groups


def _is_below(path: str, prefixes: tuple[str, ...]) -> bool:
    return any(path == prefix or path.startswith(f"{prefix}/") for prefix in prefixes)


def files(options: Options) -> TlsFiles:
    """The TLS files in their present state, read before the context is made from them."""
    pair = (options.tls_cert_file, options.tls_private_key_file) if options.tls_cert_file else ()
    return TlsFiles(pair, options.client_ca_file)


def renewal(server: HttpServer, options: Options, files: TlsFiles) -> TlsRenewal:
    """Renews the listener's TLS context when the files of the options change."""
    return TlsRenewal(server, lambda: context(options), files)


def context(options: Options) -> ssl.SSLContext:
    """The configured certificate, or a self-signed one; SetupError when it cannot be used."""
    client_ca = options.client_ca_file or None
    if options.tls_cert_file:
        return httpd.server_context(
            options.tls_cert_file, options.tls_private_key_file, client_ca_file=client_ca
        )
    hosts = list(dict.fromkeys((options.bind_address, "localhost", "127.0.0.1")))
    with tempfile.TemporaryDirectory() as folder:
        from orch.component import pki  # heavy, and needed only here

        pair = pki.self_signed(Path(folder), PROGRAM, hosts, now=clock.utc_now())
        return httpd.server_context(pair.cert_file, pair.key_file, client_ca_file=client_ca)
