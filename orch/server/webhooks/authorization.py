"""Authorization by a webhook that is sent SubjectAccessReviews, as the reference's servers are.

What it said is kept for a while, longer for what it allowed. A webhook that fails has no opinion,
or denies everything, as its configuration says; either is kept for a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter, Histogram

from orch.client.kubeconfig import ClientConfig
from orch.component.diagnostics.metrics import Registry
from orch.component.process.once_log import OnceLog
from orch.server.asking import Unanswered
from orch.server.authz.authorizer import Decision, RuleList
from orch.server.request.attributes import RequestInfo
from orch.server.webhooks.answers import SHORTEST_S, Answers, CallError, Kept, ReviewServer
from orch.wire.records.authentication import Identity
from orch.wire.selectors import parse_field_selector, parse_label_selector

log = logging.getLogger(__name__)

API_VERSION = "authorization.k8s.io/v1"  # which servers of such webhooks have compiled in
_REASON_MAX = 1024
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """Times in seconds; `denies_on_error`: else it has no opinion then."""

    name: str
    client: ClientConfig
    authorized_s: float = 300.0
    unauthorized_s: float = 30.0
    timeout_s: float = 10.0
    denies_on_error: bool = False


class AuthorizationWebhookMetrics:
    def __init__(self, registry: Registry) -> None:
        labels = ("name", "result")
        self.durations: Histogram = registry.histogram(
            "apiserver_authorization_webhook_duration_seconds",
            "Request latency in seconds.", labels, buckets=_BUCKETS,
        )  # fmt: skip
        self.evaluations: Counter = registry.counter(
            "apiserver_authorization_webhook_evaluations_total",
            "Round-trips to authorization webhooks.", labels,
        )  # fmt: skip
        self.fail_open: Counter = registry.counter(
            "apiserver_authorization_webhook_evaluations_fail_open_total",
            "NoOpinion results due to webhook timeout or error.", labels,
        )  # fmt: skip


class WebhookAuthorizer:
    """An `Authorizer` that raises `Unanswered` for what it has not been told."""

    def __init__(self, settings: WebhookSettings, metrics: AuthorizationWebhookMetrics) -> None:
        """SetupError."""
        self._settings = settings
        self._metrics = metrics
        self._server = ReviewServer(settings.client, settings.timeout_s)
        self._answers: Answers[Decision] = Answers()
        self._troubles = OnceLog(log)

    def decide(self, identity: Identity, info: RequestInfo) -> Decision:
        key = _key(identity, info)
        found = self._answers.get(key)
        if found is not None:
            return found

        async def ask() -> None:
            size = sum(map(len, map(str, key)))
            await self._answers.fetch(key, size, lambda: self._ask(identity, info))

        raise Unanswered(ask)

    def rules(self, identity: Identity, namespace: str) -> RuleList:
        text = "webhook authorizer does not support user rule resolution"
        return RuleList(incomplete=True, errors=(text,))

    async def close(self) -> None:
        await self._server.close()

    async def _ask(self, identity: Identity, info: RequestInfo) -> Kept:
        loop, settings = asyncio.get_running_loop(), self._settings
        began_s, result = loop.time(), "success"
        try:
            status = await self._server.ask(_review(identity, info), identity.name)
            decision = _decision(status)
            self._troubles.recovered("the authorization webhook %s answers again", settings.name)
        except CallError as error:
            result = error.result
            self._troubles.failed("the authorization webhook %s fails: %s", settings.name, error)
            decision = Decision(
                False, f"the authorization webhook {settings.name} fails",
                denied=settings.denies_on_error,
            )  # fmt: skip
            if not settings.denies_on_error:
                self._metrics.fail_open.labels(settings.name, result).inc()
        self._metrics.evaluations.labels(settings.name, result).inc()
        self._metrics.durations.labels(settings.name, result).observe(loop.time() - began_s)
        if result != "success":
            return Kept(decision, SHORTEST_S)
        seconds = settings.authorized_s if decision.allowed else settings.unauthorized_s
        return Kept(decision, seconds)


def _decision(status: dict[str, Any]) -> Decision:
    """CallError for what is no decision: nothing is allowed by mistake."""
    allowed, denied = status.get("allowed", False), status.get("denied", False)
    if not isinstance(allowed, bool) or not isinstance(denied, bool) or (allowed and denied):
        raise CallError("its status is neither allowed nor denied")
    given = status.get("reason")
    reason = given[:_REASON_MAX] if isinstance(given, str) else ""
    return Decision(allowed, reason, denied=denied)


def _key(identity: Identity, info: RequestInfo) -> tuple[object, ...]:
    extra = tuple(sorted((key, tuple(values)) for key, values in identity.extra.items()))
    who = identity.name, identity.uid, identity.groups, extra
    if not info.is_resource:
        return *who, info.verb, info.path
    asked = info.group, info.version, info.resource, info.subresource, info.namespace, info.name
    return *who, info.verb, *asked, info.field_selector, info.label_selector


def _review(identity: Identity, info: RequestInfo) -> dict[str, Any]:
    spec: dict[str, Any] = {"user": identity.name}
    if identity.groups:
        spec["groups"] = list(identity.groups)
    if identity.uid:
        spec["uid"] = identity.uid
    if identity.extra:
        spec["extra"] = {key: list(values) for key, values in identity.extra.items()}
    if info.is_resource:
        spec["resourceAttributes"] = _resource(info)
    else:
        spec["nonResourceAttributes"] = {"path": info.path, "verb": info.verb}
    return {"kind": "SubjectAccessReview", "apiVersion": API_VERSION, "spec": spec}


def _resource(info: RequestInfo) -> dict[str, Any]:
    named = {
        "namespace": info.namespace, "verb": info.verb, "group": info.group,
        "version": info.version, "resource": info.resource, "subresource": info.subresource,
        "name": info.name,
    }  # fmt: skip
    attributes: dict[str, Any] = {name: value for name, value in named.items() if value}
    for name, text, parse in (
        ("fieldSelector", info.field_selector, parse_field_selector),
        ("labelSelector", info.label_selector, parse_label_selector),
    ):
        if text and _parses(text, parse):
            attributes[name] = {"rawSelector": text}
    return attributes


def _parses(text: str, parse: Callable[[str], object]) -> bool:
    try:
        parse(text)
    except ValueError:
        return False  # it is refused later
    return True
