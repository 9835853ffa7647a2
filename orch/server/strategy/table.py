"""The strategy of every served kind; one row per row of `orch.wire.records.kinds`.

Reviews are answered, never stored; `orch.server.handlers.review_checks` checks them. Service
accounts, the identities of pods, have no rules of their own.
"""

from __future__ import annotations

from orch.server.strategy import (
    configuration,
    events,
    namespaces,
    nodes,
    pods,
    priority_classes,
    quotas,
    rbac,
)
from orch.server.strategy.base import Strategy
from orch.wire.records.kinds import REVIEWS, SERVICE_ACCOUNTS

REVIEW_STRATEGIES = tuple(Strategy(resource) for resource in REVIEWS)

SERVICE_ACCOUNT_STRATEGY = Strategy(SERVICE_ACCOUNTS, returns_deleted=True)

STRATEGIES: tuple[Strategy, ...] = (
    namespaces.STRATEGY,
    nodes.NODE_STRATEGY,
    pods.STRATEGY,
    events.STRATEGY,
    configuration.CONFIG_MAP_STRATEGY,
    configuration.SECRET_STRATEGY,
    SERVICE_ACCOUNT_STRATEGY,
    quotas.STRATEGY,
    nodes.LEASE_STRATEGY,
    *rbac.ROLE_STRATEGIES[:1],
    *rbac.BINDING_STRATEGIES[:1],
    *rbac.ROLE_STRATEGIES[1:],
    *rbac.BINDING_STRATEGIES[1:],
    priority_classes.STRATEGY,
    *REVIEW_STRATEGIES,
)
_BY_PLURAL = {(s.resource.group, s.resource.version, s.resource.plural): s for s in STRATEGIES}


def find_strategy(group: str, version: str, plural: str) -> Strategy | None:
    return _BY_PLURAL.get((group, version, plural))
