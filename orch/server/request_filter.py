"""The filter that every request passes: authenticated, bounded, authorized, counted, audited.

One middleware, in this order: attributes → identity → seat → impersonation → memory → decision →
body → handler → errors as answers → metrics, audit. A handler runs only after the decision; nothing
else decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from orch.component.http import httpd
from orch.component.http.fair_queue import Deadlines
from orch.server.asking import Unanswered, answered
from orch.server.audit import trail as audit_trail
from orch.server.audit.trail import Auditor, Trail
from orch.server.authn import impersonation
from orch.server.authn.credentials import ANONYMOUS
from orch.server.authz import authorizer
from orch.server.authz.authorizer import NO_OPINION, Authorizer
from orch.server.flow.control import FlowControl
from orch.server.handlers.call import AUTHORIZE, IDENTITY, INFO, NOTES, warning_headers
from orch.server.handlers.watch_stream import COUNT_SENT
from orch.server.metrics import Attempts, ServerMetrics
from orch.server.pressure import MemoryPressure
from orch.server.request import aliases, media
from orch.server.request.attributes import RequestInfo, parse_request
from orch.wire.errors import ApiError, bad_request, unauthorized
from orch.wire.records.authentication import Identity
from orch.wire.times import parse_duration


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """`middleware` is the application's only one. `own_request` translates aliases of groups
    (None without aliases); `authenticate` is asked about callers without a client certificate.
    """

    authenticate: Callable[[web.Request], Awaitable[Identity]]
    authorizer: Authorizer
    flows: FlowControl
    metrics: ServerMetrics
    deadlines: Deadlines
    pressure: MemoryPressure
    own_request: Callable[[RequestInfo], RequestInfo] | None = None
    auditor: Auditor | None = None
    open_paths: Collection[str] = ()  # open to anonymous callers, if roles allow it
    challenge: str = ""  # WWW-Authenticate for callers without credentials

    def middleware(self) -> Middleware:
        @web.middleware
        def filtered(request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
            return self._pass(request, handler)

        return filtered

    async def _pass(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        info = parse_request(request.method, request.rel_url.raw_path, request.query)
        if self.own_request is not None:
            info = self.own_request(info)
        code = 0  # counted when the client left before the answer
        response: web.StreamResponse | None = None
        try:
            try:
                response = await self._enter(request, handler, info)
            except Exception as error:
                # A name for the refusal would keep it, its traceback and the request's body in a
                # cycle with this frame.
                response = httpd.answer_error(
                    request, aliases.refusal_as_asked(error, info), httpd.render_status
                )
                if NOTES in request:
                    for warning in warning_headers(request[NOTES].warnings):
                        response.headers.add("Warning", warning)
            code = response.status
            if code == 401 and self.challenge:
                response.headers.setdefault("WWW-Authenticate", self.challenge)
            return response
        finally:
            # Not aiohttp's `content_type`, whose parser is quadratic: 8 kB took a second.
            applies = info.verb == "patch" and (
                media.parse_media(request.headers.get("Content-Type", "")).type == media.APPLY_PATCH
            )
            self.metrics.observe(
                replace(info, verb="apply") if applies else info,
                dry_run="dryRun" in request.query,
                code=code,
                seconds=loop.time() - started_s,
                response=response,
            )
            if self.auditor is not None and audit_trail.TRAIL in request:
                await request[audit_trail.TRAIL].ended(response)

    async def _enter(
        self, request: web.Request, handler: Handler, info: RequestInfo
    ) -> web.StreamResponse:
        caller: Identity | None = None
        failure: Exception | None = None
        connection = httpd.connection_of(request)
        began_s = time.perf_counter()
        try:
            caller = httpd.current_peer(request) or await self.authenticate(request)
        except Exception as error:
            failure = error
        self._count_authentication(caller, failure, began_s)
        trail = None if self.auditor is None else self.auditor.begin(request, info, caller)
        async with self.flows.seat(connection, caller, info) as seat:
            if caller is None:
                try:
                    raise failure or unauthorized()
                finally:
                    failure = None  # its traceback holds this frame
            identity = caller
            if _asks_to_impersonate(request.headers):
                identity = await self._acting(caller, request)
                if trail is not None:
                    trail.impersonated(identity)
            if self.pressure.state and not seat.is_upper:
                self.pressure.refuse(info)
            decide = partial(self._authorize, identity, info, trail)
            request[AUTHORIZE] = partial(answered, decide)
            try:
                decide()  # mostly nothing has to be asked
            except Unanswered:
                await request[AUTHORIZE]()
            request[INFO] = info
            request[IDENTITY] = identity
            await seat.prepare(request)
            try:
                return await self._carry_out(request, handler, info)
            except (ApiError, web.HTTPException, ConnectionError):
                raise
            except Exception:
                if trail is not None:
                    trail.panicked = True
                raise

    async def _acting(self, caller: Identity, request: web.Request) -> Identity:
        if caller is ANONYMOUS:
            raise unauthorized()
        act = partial(impersonation.impersonate, caller, request.headers, self.authorizer)
        return await answered(act)

    def _count_authentication(
        self, caller: Identity | None, failure: Exception | None, began_s: float
    ) -> None:
        refused = failure is None or (isinstance(failure, ApiError) and failure.code == 401)
        result = "success" if caller is not None else "failure" if refused else "error"
        _observe(self.metrics.authentications[result], began_s)

    async def _carry_out(
        self, request: web.Request, handler: Handler, info: RequestInfo
    ) -> web.StreamResponse:
        if info.is_long_running:
            request[COUNT_SENT] = self.metrics.watch_events(info)
            with self.metrics.long_running(info).track_inprogress():
                return await handler(request)
        longest_s = timeout_s = self.deadlines.seconds
        try:
            asked = request.query.get("timeout")
            if asked is not None:
                timeout_s = time_for(asked, longest_s)
            if timeout_s < longest_s:
                async with asyncio.timeout(timeout_s):
                    return await handler(request)
            return await self.deadlines.hold(handler(request))
        except TimeoutError:
            text = f"the request was not answered within {timeout_s:g} s"
            raise ApiError(504, "Timeout", text) from None

    def _authorize(self, identity: Identity, info: RequestInfo, trail: Trail | None) -> None:
        began_s = time.perf_counter()
        if identity is ANONYMOUS and info.path not in self.open_paths:
            decision = NO_OPINION
        else:
            decision = self.authorizer.decide(identity, info)
        result = "allowed" if decision.allowed else "denied" if decision.denied else "no-opinion"
        _observe(self.metrics.authorizations[result], began_s)
        if trail is not None:
            trail.decided(allowed=decision.allowed, reason=decision.reason)
        if decision.allowed:
            return
        if identity is ANONYMOUS:
            raise unauthorized()
        raise authorizer.forbidden(identity, info, decision.reason)


def _observe(result: Attempts, began_s: float) -> None:
    result.attempts.inc()
    result.duration.observe(time.perf_counter() - began_s)


def _asks_to_impersonate(headers: Iterable[str]) -> bool:
    return any(
        name[:1] in "Ii" and name.lower().startswith(impersonation.PREFIX) for name in headers
    )


def time_for(asked: str, longest_s: float) -> float:
    """Seconds that a request may take: its `timeout` if that is shorter; ApiError 400."""
    if not asked:
        return longest_s
    try:
        asked_s = parse_duration(asked)
    except ValueError as error:
        raise bad_request(f"invalid timeout specified in the request URL: {error}") from None
    return asked_s if 0 < asked_s < longest_s else longest_s
