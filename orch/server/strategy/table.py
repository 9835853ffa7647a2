"""The strategy of every kind that is served; one row per row of `orch.wire.kinds`."""

from __future__ import annotations

from orch.server.strategy import (
    configmaps,
    events,
    leases,
    namespaces,
    nodes,
    pods,
    reviews,
    rolebindings,
    roles,
    secrets,
    serviceaccounts,
)
from orch.server.strategy.base import Strategy

_MODULES = (namespaces, nodes, pods, events, configmaps, secrets, serviceaccounts, leases)
STRATEGIES: tuple[Strategy, ...] = (
    *(module.STRATEGY for module in _MODULES),
    *roles.STRATEGIES[:1],
    *rolebindings.STRATEGIES[:1],
    *roles.STRATEGIES[1:],
    *rolebindings.STRATEGIES[1:],
    *reviews.STRATEGIES,
)
_BY_PLURAL = {(s.resource.group, s.resource.version, s.resource.plural): s for s in STRATEGIES}


def find_strategy(group: str, version: str, plural: str) -> Strategy | None:
    return _BY_PLURAL.get((group, version, plural))
