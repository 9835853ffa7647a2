"""The one way in: every request is read, authenticated, bounded, authorized and counted here.

One middleware instead of five: attributes → identity → whom it acts for → in-flight bound →
decision → handler → errors as answers → metrics. A handler runs only after the decision; nothing
else decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from orch.component import httpd
from orch.server import authorizer
from orch.server.authn import ANONYMOUS
from orch.server.authorizer import Authorizer
from orch.server.impersonation import impersonate
from orch.server.inflight import Inflight
from orch.server.metrics import ServerMetrics
from orch.server.requestinfo import RequestInfo, parse_request
from orch.wire.errors import ApiError, unauthorized
from orch.wire.identity import Identity

REQUEST_TIMEOUT_S = 60.0
INFO = web.RequestKey("info", RequestInfo)
IDENTITY = web.RequestKey("identity", Identity)


@dataclass(frozen=True, slots=True)
class Gate:
    """`middleware` is the application's only one; `own_request` knows other names of groups."""

    authenticate: Callable[[web.Request], Awaitable[Identity]]
    authorizer: Authorizer
    inflight: Inflight
    metrics: ServerMetrics
    own_request: Callable[[RequestInfo], RequestInfo] = field(default=lambda info: info)

    def middleware(self) -> Middleware:
        @web.middleware
        async def pass_gate(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._pass(request, handler)

        return pass_gate

    async def _pass(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        info = self.own_request(
            parse_request(request.method, request.rel_url.raw_path, request.query)
        )
        code = 0  # what is counted when the client left before it was answered

        async def enter(entering: web.Request) -> web.StreamResponse:
            return await self._enter(entering, handler, info)

        try:
            response = await httpd.api_errors(request, enter)
            code = response.status
            return response
        finally:
            self.metrics.observe(
                info,
                dry_run="dryRun" in request.query,
                code=code,
                seconds=loop.time() - started_s,
            )

    async def _enter(
        self, request: web.Request, handler: Handler, info: RequestInfo
    ) -> web.StreamResponse:
        identity = impersonate(await self.authenticate(request), request.headers)
        with self.inflight.admit(identity, info):
            self._authorize(identity, info)
            request[INFO] = info
            request[IDENTITY] = identity
            if info.is_long_running:
                with self.metrics.long_running(info).track_inprogress():
                    return await handler(request)
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    return await handler(request)
            except TimeoutError:
                text = f"the request was not answered within {REQUEST_TIMEOUT_S:g} s"
                raise ApiError(504, "Timeout", text) from None

    def _authorize(self, identity: Identity, info: RequestInfo) -> None:
        decision = self.authorizer.decide(identity, info)
        if decision.allowed:
            return
        if identity is ANONYMOUS:
            raise unauthorized()
        raise authorizer.forbidden(identity, info, decision.reason)
