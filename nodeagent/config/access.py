"""The part of the configuration that says who may use the agent's secure port."""

from __future__ import annotations

from typing import Literal

from nodeagent.config.fields import ConfigModel, Duration


class X509Authentication(ConfigModel):
    clientCAFile: str = ""


class WebhookAuthentication(ConfigModel):
    """Bearer tokens, reviewed by the API server; good and bad answers are kept for `cacheTTL`."""

    enabled: bool = True
    cacheTTL: Duration = 120.0


class AnonymousAuthentication(ConfigModel):
    enabled: bool = False


class Authentication(ConfigModel):
    x509: X509Authentication = X509Authentication()
    webhook: WebhookAuthentication = WebhookAuthentication()
    anonymous: AnonymousAuthentication = AnonymousAuthentication()


class WebhookAuthorization(ConfigModel):
    """How long the API server's answers are kept; 0s asks every time."""

    cacheAuthorizedTTL: Duration = 300.0
    cacheUnauthorizedTTL: Duration = 30.0


class Authorization(ConfigModel):
    """`Webhook` asks the API server; without one, the groups of a client certificate decide."""

    mode: Literal["AlwaysAllow", "Webhook"] = "Webhook"
    webhook: WebhookAuthorization = WebhookAuthorization()
