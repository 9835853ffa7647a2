"""Which authorizers decide, in which order: by flags, or by a file that is read again.

The file of `--authorization-config` is the reference's AuthorizationConfiguration. While a changed
one cannot be used, the one before stays in force: that is logged once per cause, and counted.
Conditions in CEL are refused, as nothing here evaluates them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from prometheus_client import Counter, Gauge
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from orch.client.kubeconfig import ClientConfig, load_kubeconfig
from orch.component import yaml_file
from orch.component.diagnostics.metrics import Registry
from orch.component.flags.program_flags import read_file
from orch.component.process import loops
from orch.component.process.clock import wall_ns
from orch.component.process.daemon import SetupError
from orch.component.process.once_log import OnceLog
from orch.server.authn.flags import AuthFlags
from orch.server.authz.authorizer import WEBHOOK, AskerOf, Authorizer, Chain, chain_of
from orch.server.webhooks.authorization import (
    AuthorizationWebhookMetrics,
    WebhookAuthorizer,
    WebhookSettings,
)
from orch.wire.times import parse_duration
from orch.wire.validation import dns1123_subdomain_problems

log = logging.getLogger(__name__)

INTERVAL_S = 10.0
_FLAG = "--authorization-config"
_LONGEST_S = 30.0  # that a webhook may take
_MAX_AUTHORIZERS = 16
_Seconds = Annotated[float, BeforeValidator(lambda text: _seconds(text))]


def _seconds(text: Any) -> float:
    if not isinstance(text, str):
        raise ValueError("is not a duration")
    return parse_duration(text)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConnectionInfo(_Strict):
    type: Literal["KubeConfigFile"]
    kubeConfigFile: str = Field(min_length=1)


class WebhookEntry(_Strict):
    authorizedTTL: _Seconds = 300.0
    unauthorizedTTL: _Seconds = 30.0
    timeout: _Seconds
    subjectAccessReviewVersion: Literal["v1"]
    matchConditionSubjectAccessReviewVersion: Literal["v1", ""] = ""
    failurePolicy: Literal["NoOpinion", "Deny"]
    connectionInfo: ConnectionInfo
    matchConditions: list[dict[str, str]] = []

    @field_validator("timeout")
    @classmethod
    def _check_timeout(cls, seconds: float) -> float:
        if not 0 < seconds <= _LONGEST_S:
            raise ValueError(f"must be above 0 s and at most {_LONGEST_S:g} s")
        return seconds

    @field_validator("matchConditions")
    @classmethod
    def _check_conditions(cls, conditions: list[dict[str, str]]) -> list[dict[str, str]]:
        if conditions:
            raise ValueError("conditions in CEL are not evaluated here")
        return conditions


class AuthorizerEntry(_Strict):
    type: Literal["Node", "RBAC", "Webhook", "AlwaysAllow", "AlwaysDeny"]
    name: str
    webhook: WebhookEntry | None = None

    @model_validator(mode="after")
    def _check(self) -> AuthorizerEntry:
        for problem in dns1123_subdomain_problems(self.name):
            raise ValueError(f"name: {self.name!r}: {problem}")
        if (self.type == WEBHOOK) != (self.webhook is not None):
            raise ValueError("webhook: is needed for the type Webhook, and for no other")
        return self


class AuthorizationConfiguration(_Strict):
    apiVersion: Literal["apiserver.config.k8s.io/v1", "apiserver.config.orch.io/v1"]
    kind: Literal["AuthorizationConfiguration"]
    authorizers: list[AuthorizerEntry] = Field(min_length=1, max_length=_MAX_AUTHORIZERS)

    @model_validator(mode="after")
    def _check(self) -> AuthorizationConfiguration:
        names = [one.name for one in self.authorizers]
        types = [one.type for one in self.authorizers if one.type != WEBHOOK]
        for what, values in (("names", names), ("types", types)):
            if len(set(values)) < len(values):
                raise ValueError(f"authorizers: {what} must be unique: {', '.join(values)}")
        return self


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The modes in order, and the settings of each `Webhook` among them."""

    modes: tuple[str, ...]
    webhooks: tuple[WebhookSettings, ...] = ()


class ReloadMetrics:
    """How often the file was read again, by the reference's names."""

    def __init__(self, registry: Registry) -> None:
        self._reloads: Counter = registry.counter(
            "apiserver_authorization_config_controller_automatic_reloads_total",
            "Total number of automatic reloads of authorization configuration split by status.",
            ("status",),
        )
        self._last: Gauge = registry.gauge(
            "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
            "Timestamp of the last automatic reload of authorization configuration split by"
            " status.",
            ("status",),
        )

    def count(self, status: str) -> None:
        self._reloads.labels(status).inc()
        self._last.labels(status).set(wall_ns() / 1e9)


class Authorization:
    """`chain` decides; `loops` keep it as the file has it."""

    def __init__(
        self,
        flags: AuthFlags,
        registry: Registry,
        nodes: Authorizer,
        roles: Authorizer,
        asker_of: AskerOf,
    ) -> None:
        """SetupError for a file that cannot be used."""
        self._file = flags.authorization_config
        self._nodes, self._roles, self._asker_of = nodes, roles, asker_of
        self._webhooks: tuple[WebhookAuthorizer, ...] = ()
        self._metrics = AuthorizationWebhookMetrics(registry)
        self._reloads = ReloadMetrics(registry)
        self._troubles = OnceLog(log, logging.ERROR)
        self._seen = _digest(self._file)
        self._tried = self._seen
        chosen = _of_flags(flags) if self._file is None else read(self._file)
        self.chain, self._webhooks = self._make(chosen)

    def loops(self) -> list[loops.Loop]:
        if self._file is None:
            return []
        return [loops.Periodic("authorization", self.step, interval_s=INTERVAL_S)]

    async def step(self) -> None:
        """Follow the file, if it has changed."""
        file = self._file
        if file is None:
            return
        seen = await asyncio.to_thread(_digest, file)
        if seen == self._seen:
            self._troubles.recovered("%s is as it was: it is in force again", file)
            self._tried = seen
            return
        try:
            chosen = await asyncio.to_thread(read, file)
            chain, webhooks = self._make(chosen)
        except SetupError as error:
            self._troubles.failed("the authorizers stay as they were: %s", error)
            if seen != self._tried:
                self._reloads.count("failure")
            self._tried = seen
            return
        self._seen = self._tried = seen
        old, self._webhooks = self._webhooks, webhooks
        self.chain.follow(chain)
        self._reloads.count("success")
        self._troubles.recovered()
        log.info("requests are authorized as %s now says", file)
        for webhook in old:
            await webhook.close()

    async def close(self) -> None:
        for webhook in self._webhooks:
            await webhook.close()

    def _make(self, chosen: _Chosen) -> tuple[Chain, tuple[WebhookAuthorizer, ...]]:
        webhooks = tuple(WebhookAuthorizer(one, self._metrics) for one in chosen.webhooks)
        return chain_of(chosen.modes, self._nodes, self._roles, self._asker_of, webhooks), webhooks


def _of_flags(flags: AuthFlags) -> _Chosen:
    if flags.webhook is None:
        return _Chosen(flags.modes)
    settings = WebhookSettings(
        "default",
        _client(flags.webhook),
        flags.webhook_authorized_s,
        flags.webhook_unauthorized_s,
    )
    return _Chosen(flags.modes, (settings,))


def read(file: Path) -> _Chosen:
    """What the file says; SetupError names what is wrong where."""
    record = read_file(_FLAG, file, AuthorizationConfiguration)
    return _Chosen(tuple(one.type for one in record.authorizers), _webhooks(file, record))


def _webhooks(file: Path, record: AuthorizationConfiguration) -> tuple[WebhookSettings, ...]:
    entries: Sequence[tuple[str, WebhookEntry]] = [
        (one.name, one.webhook) for one in record.authorizers if one.webhook is not None
    ]
    return tuple(
        WebhookSettings(
            name,
            _client(file.parent / entry.connectionInfo.kubeConfigFile),
            entry.authorizedTTL,
            entry.unauthorizedTTL,
            entry.timeout,
            entry.failurePolicy == "Deny",
        )
        for name, entry in entries
    )


def _client(file: Path) -> ClientConfig:
    return load_kubeconfig(str(file))


def _digest(file: Path | None) -> bytes:
    if file is None:
        return b""
    try:
        return hashlib.sha256(file.read_bytes()[: yaml_file.MAX_BYTES + 1]).digest()
    except OSError as error:
        return str(error.errno).encode()
