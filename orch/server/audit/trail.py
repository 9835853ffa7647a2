"""The audit trail of one request: who asked for what, when, and how it ended.

A `Trail` begins after authentication and is told how the request proceeds; the policy says which
stages are recorded and in how much detail. Level Metadata records no part of any object
but what pod security annotates, and no level records a token.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from orch.component.http import httpd
from orch.component.http.sliced_response import Data, body_of
from orch.component.process.clock import Now, utc_now
from orch.server import turns
from orch.server.audit.log import AuditLog, Rotation
from orch.server.audit.policy import LEVEL_NAMES, Level, Policy, Stage, read_policy
from orch.server.metrics import ServerMetrics
from orch.server.request import bodies
from orch.server.request.attributes import RequestInfo, is_text
from orch.wire.errors import ApiError
from orch.wire.names import AUDIT_GROUP
from orch.wire.records.authentication import Identity, user_info
from orch.wire.times import format_micro_time

HEADER = "Audit-Id"
_ID_MAX = 64
_AGENT_MAX = 1024
_TRUNCATED = "audit.orch.io/truncated"  # the answer is too large to be written down


@dataclass(frozen=True, slots=True)
class Auditor:
    """Begins a trail for each request that the policy wants recorded; `write` takes the lines."""

    policy: Policy
    write: Callable[[bytes], None]
    metrics: ServerMetrics
    now: Now = utc_now

    def begin(
        self, request: web.Request, info: RequestInfo, caller: Identity | None
    ) -> Trail | None:
        """None when this request is not recorded; `caller` None: authentication failed."""
        level, omitted = self.policy.decide(caller, info)
        self.metrics.audit_levels.labels(LEVEL_NAMES[level]).inc()
        if level is Level.NONE:
            return None
        trail = Trail(self, request, info, level, omitted, caller, self.now())
        request[TRAIL] = trail
        trail.emit("RequestReceived")
        return trail


@dataclass(slots=True)
class Trail:
    """The state of one request so far."""

    auditor: Auditor
    request: web.Request
    info: RequestInfo
    level: Level
    omitted: frozenset[Stage]
    caller: Identity | None
    received: datetime
    id: str = ""
    acting_as: Identity | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    panicked: bool = False

    def __post_init__(self) -> None:
        given = self.request.headers.get(HEADER, "")
        self.id = given if given.isprintable() and 0 < len(given) <= _ID_MAX else str(uuid.uuid4())

    def impersonated(self, identity: Identity) -> None:
        if identity is not self.caller:
            self.acting_as = identity

    def decided(self, *, allowed: bool, reason: str) -> None:
        self.annotations["authorization.orch.io/decision"] = "allow" if allowed else "forbid"
        self.annotations["authorization.orch.io/reason"] = reason

    def started(self, response: web.StreamResponse) -> None:
        """The answer begins; for long-running requests this is an event of its own."""
        response.headers[HEADER] = self.id
        if self.info.is_long_running:
            self.emit("ResponseStarted", {"responseStatus": {"code": response.status}})

    async def ended(self, response: web.StreamResponse | None) -> None:
        """None: the client left before the answer."""
        more: dict[str, Any] = {"responseStatus": self._status_of(response)}
        try:
            await self._add_objects(response, more)
        finally:  # also when the client leaves while this awaits its turn
            self.emit("Panic" if self.panicked else "ResponseComplete", more)

    async def _add_objects(self, response: web.StreamResponse | None, more: dict[str, Any]) -> None:
        if self.level >= Level.REQUEST:
            sent = await _request_object(self.request)
            if sent is not None:
                more["requestObject"] = _without_token(self.info, sent)
        if self.level >= Level.REQUEST_RESPONSE:
            body = await turns.beginning(response, bodies.MAX_BYTES + 1)
            answered = _as_object(body) if len(body) <= bodies.MAX_BYTES else None
            if answered is not None:
                more["responseObject"] = _without_token(self.info, answered)
            elif body:  # to read a list of 36 MB again took half a second
                self.annotations[_TRUNCATED] = "true"

    def _status_of(self, response: web.StreamResponse | None) -> dict[str, Any]:
        """The code; for refusals also the reason, and the message, which may quote the request."""
        if response is None:
            return {"code": 0, "message": "the client left before the answer"}
        status: dict[str, Any] = {"code": response.status}
        if response.status >= 400:
            answer = _as_object(body_of(response) or b"") or {}
            quoting = self.level >= Level.REQUEST and not _is_about_tokens(self.info)
            shown = ("status", "reason", "message")[: 3 if quoting else 2]
            status |= {name: answer[name] for name in shown if answer.get(name)}
        return status

    def emit(self, stage: Stage, more: Mapping[str, Any] | None = None) -> None:
        """Write one event, unless the policy omits its stage."""
        if stage in self.omitted:
            return
        event = {
            "kind": "Event",
            "apiVersion": f"{AUDIT_GROUP}/v1",
            "level": LEVEL_NAMES[self.level],
            "auditID": self.id,
            "stage": stage,
            "requestURI": self.request.raw_path,
            "verb": self.info.verb,
            "user": _user(self.caller),
            **({"impersonatedUser": _user(self.acting_as)} if self.acting_as else {}),
            "sourceIPs": [self.request.remote or ""],
            "userAgent": _user_agent(self.request),
            **({"objectRef": _object_ref(self.info)} if self.info.is_resource else {}),
            **(more or {}),
            "requestReceivedTimestamp": format_micro_time(self.received),
            "stageTimestamp": format_micro_time(self.auditor.now()),
            **({"annotations": self.annotations} if self.annotations else {}),
        }
        self.auditor.write(orjson.dumps(event, default=str) + b"\n")
        self.auditor.metrics.audit_events.inc()


TRAIL = web.RequestKey("trail", Trail)


async def on_prepare(request: web.Request, response: web.StreamResponse) -> None:
    """The application's signal that an answer begins."""
    trail = request.get(TRAIL)
    if trail is not None:
        trail.started(response)


def _user(identity: Identity | None) -> dict[str, Any]:
    return {} if identity is None else user_info(identity).model_dump(exclude_none=True)


def _user_agent(request: web.Request) -> str:
    """Cut as in the reference: callers without rights could push others' events out of the log."""
    sent = request.headers.get("User-Agent", "")
    shown = sent if is_text(sent) else ascii(sent)
    return shown if len(shown) <= _AGENT_MAX else f"{shown[:_AGENT_MAX]}...TRUNCATED"


def _object_ref(info: RequestInfo) -> dict[str, str]:
    named = {
        "resource": info.resource,
        "namespace": info.namespace,
        "name": info.name,
        "apiGroup": info.group,
        "apiVersion": info.version,
        "subresource": info.subresource,
    }
    return {name: value for name, value in named.items() if value}


async def _request_object(request: web.Request) -> dict[str, Any] | None:
    """The body that the handler read, as an object; None without one."""
    if not request.content.at_eof():
        return None
    try:
        body = await httpd.read_body(request)  # complete: the request keeps the body
    except ApiError:
        return None
    try:
        body, kind = await turns.as_json(body, request.headers.get("Content-Type", ""))
        return bodies.decode_object(body, kind) if body else None
    except ApiError:
        return _as_object(body)


_ABOUT_TOKENS = (("tokenreviews", ""), ("serviceaccounts", "token"))
_BESIDE_TOKENS = ("kind", "apiVersion", "reason", "code")


def _is_about_tokens(info: RequestInfo) -> bool:
    return (info.resource, info.subresource) in _ABOUT_TOKENS


def _without_token(info: RequestInfo, record: dict[str, Any]) -> dict[str, Any]:
    """A review of a token, or a request for one, without it: who reads the log could use it. Parts
    that may repeat what a client sent in the wrong place are left out, too.
    """
    if not _is_about_tokens(info):
        return record
    kept = {name: record[name] for name in _BESIDE_TOKENS if name in record}
    for name in ("spec", "status"):
        part = record.get(name)
        if isinstance(part, dict):
            kept[name] = {field: value for field, value in part.items() if field != "token"}
    return kept


def _as_object(body: Data) -> dict[str, Any] | None:
    """An object as it is, a list (a patch) under `patch`; None for more than any object has."""
    try:
        bodies.require_bounded(bytes(body), bodies.MAX_RECORDED_VALUES)
        data = orjson.loads(body)
    except (ApiError, orjson.JSONDecodeError):
        return None
    if isinstance(data, list):
        return {"patch": data}
    return data if isinstance(data, dict) else None


def auditor_of(
    policy_file: Path | None, log_path: str | None, rotation: Rotation, metrics: ServerMetrics
) -> tuple[Auditor | None, AuditLog | None]:
    """The auditor and the log to open and close; SetupError for a policy that cannot be used."""
    if log_path is None or policy_file is None:
        return None, None
    failed = metrics.audit_errors.labels("log")
    written = AuditLog(log_path, rotation, failed.inc)
    return Auditor(read_policy(policy_file), written.write, metrics), written
