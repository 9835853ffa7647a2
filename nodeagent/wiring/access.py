"""Builds the agent's access control.

With an API server, tokens and rights are reviewed there; without one, the groups of the client
certificate decide (`authorization.BuiltInGroups`) and no token is valid.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeagent.auth import access, authorization
from nodeagent.auth.access import Access
from nodeagent.auth.authentication import Authenticator, Tokens
from nodeagent.auth.authorization import Authorizer
from nodeagent.auth.reviews import ApiReviews
from nodeagent.config.current import CurrentConfig
from nodeagent.config.types import NodeAgentConfiguration
from orch.client.resources import ApiClient
from orch.component.flags.features import Features


def build_access(
    current: CurrentConfig, features: Features, client: ApiClient | None, *, node_name: str
) -> Access:
    reviews = ApiReviews(client, node_name) if client else None
    known = current.value.authentication
    tokens = None
    if reviews and known.webhook.enabled:
        tokens = Tokens(reviews, keep_s=lambda: current.value.authentication.webhook.cacheTTL)
    return Access(
        Authenticator(tokens=tokens, anonymous=known.anonymous.enabled),
        _authorizer(current, reviews),
        fine_grained=features.enabled(access.FINE_GRAINED),
    )


def missing_access(config: NodeAgentConfiguration, *, standalone: bool) -> Iterator[str]:
    """Surprising openings and gaps of the access control, a phrase each."""
    known = config.authentication
    tokens = known.webhook.enabled and not standalone
    if not (known.x509.clientCAFile or tokens or known.anonymous.enabled):
        yield (
            "no client can use the secure port: there is no client CA"
            " (authentication.x509.clientCAFile) and no API server to review tokens"
        )
    if known.anonymous.enabled:
        yield "anonymous callers are let in (authentication.anonymous.enabled)"
    if config.authorization.mode == "AlwaysAllow":
        yield "whoever is authenticated may do everything (authorization.mode is AlwaysAllow)"
    if config.readOnlyPort:
        yield f"statistics and pods are open to everyone on port {config.readOnlyPort}"


def _authorizer(current: CurrentConfig, reviews: ApiReviews | None) -> Authorizer:
    if current.value.authorization.mode == "AlwaysAllow":
        return authorization.AlwaysAllow()
    if reviews is None:
        return authorization.BuiltInGroups()

    def keep_s(allowed: bool) -> float:
        times = current.value.authorization.webhook
        return times.cacheAuthorizedTTL if allowed else times.cacheUnauthorizedTTL

    return authorization.Reviewed(reviews, keep_s=keep_s)
