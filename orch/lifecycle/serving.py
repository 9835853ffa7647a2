"""What the controller manager serves: health to everyone, metrics to those who may read them.

On loopback whoever has the machine may; elsewhere a verified client certificate is asked for.
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

from orch.component import clock, httpd, slis
from orch.component.features import Features
from orch.component.health import HealthChecks, SliMetrics
from orch.component.zpages import ZPages, configz
from orch.lifecycle.metrics import LifecycleMetrics
from orch.lifecycle.options import PROGRAM, Options
from orch.lifecycle.records import Settings
from orch.wire import errors

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_OPEN = ("/healthz", "/livez", "/readyz")


class Pages(Protocol):
    """What there is to show."""

    checks: HealthChecks
    slis: SliMetrics
    metrics: LifecycleMetrics
    zpages: ZPages
    features: Features
    settings: Settings


def application(pages: Pages, *, guarded: bool) -> web.Application:
    """`guarded` asks for a client certificate everywhere but at the health endpoints."""
    middlewares = [httpd.text_errors]
    if guarded:
        middlewares.append(_certificate_required)
    app = web.Application(middlewares=middlewares)

    async def show_metrics(request: web.Request) -> web.Response:
        accept = request.headers.get("Accept", "")
        # On a thread: the page has files of /proc to read.
        body, content_type = await asyncio.to_thread(pages.metrics.registry.render, accept)
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def show_slis(_request: web.Request) -> web.Response:
        return web.Response(body=pages.slis.render(), headers={"Content-Type": slis.CONTENT_TYPE})

    app.router.add_routes(
        [
            *pages.checks.handlers(),
            web.get("/metrics", show_metrics),
            web.get("/metrics/slis", show_slis),
            configz("controllermanagerconfig", lambda: asdict(pages.settings)),
            *pages.zpages.routes(pages.features),
        ]
    )
    return app


@web.middleware
async def _certificate_required(request: web.Request, handler: _Handler) -> web.StreamResponse:
    open_to_all = any(request.path == path or request.path.startswith(f"{path}/") for path in _OPEN)
    if not open_to_all and httpd.peer_identity(request) is None:
        raise errors.unauthorized()
    return await handler(request)


def context(options: Options) -> ssl.SSLContext:
    """The certificate asked for, or one made up for this run; SetupError when it cannot be used."""
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
