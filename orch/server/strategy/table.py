"""The strategy of every served kind; one row per row of `orch.wire.records.kinds`.

Reviews are answered, never stored; `orch.server.handlers.review_checks` checks them. Service
accounts, the identities of pods, have no rules of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from orch.server.strategy import (
    configuration,
    definitions,
    events,
    namespaces,
    nodes,
    pods,
    priority_classes,
    quotas,
    rbac,
    signing_requests,
    webhooks,
)
from orch.server.strategy.base import Strategy
from orch.wire.records.kinds import REVIEWS, SERVICE_ACCOUNTS, Resource

REVIEW_STRATEGIES = tuple(Strategy(resource) for resource in REVIEWS)

SERVICE_ACCOUNT_STRATEGY = Strategy(SERVICE_ACCOUNTS, returns_deleted=True)

STRATEGIES: tuple[Strategy, ...] = (
    namespaces.STRATEGY,
    nodes.NODE_STRATEGY,
    pods.STRATEGY,
    pods.TEMPLATE_STRATEGY,
    events.STRATEGY,
    configuration.CONFIG_MAP_STRATEGY,
    configuration.SECRET_STRATEGY,
    SERVICE_ACCOUNT_STRATEGY,
    quotas.STRATEGY,
    configuration.LIMIT_RANGE_STRATEGY,
    events.REPORT_STRATEGY,
    nodes.LEASE_STRATEGY,
    *rbac.ROLE_STRATEGIES[:1],
    *rbac.BINDING_STRATEGIES[:1],
    *rbac.ROLE_STRATEGIES[1:],
    *rbac.BINDING_STRATEGIES[1:],
    priority_classes.STRATEGY,
    nodes.RUNTIME_CLASS_STRATEGY,
    signing_requests.STRATEGY,
    definitions.STRATEGY,
    *webhooks.STRATEGIES,
    *REVIEW_STRATEGIES,
)


class ServedKinds:
    """The kinds that a server serves now: those of the table, and others that come and go.

    `changes` grows with every change, for those who keep something that they made from the kinds.
    """

    def __init__(self, strategies: Iterable[Strategy] = STRATEGIES) -> None:
        self._fixed = tuple(strategies)
        self._more: dict[str, tuple[Strategy, ...]] = {}
        self.changes = 0
        self._arrange()

    @property
    def more(self) -> Mapping[str, tuple[Strategy, ...]]:
        """Those beside the table, by the name they were put under."""
        return self._more

    def put(self, name: str, strategies: Iterable[Strategy]) -> None:
        """Serve a kind, in all its versions, that of storage first; () serves it no longer."""
        if made := tuple(strategies):
            self._more[name] = made
        elif self._more.pop(name, None) is None:
            return
        self.changes += 1
        self._arrange()

    def find(self, group: str, version: str, plural: str) -> Strategy | None:
        return self._by_plural.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Strategy | None:
        """By what objects say of themselves; only kinds that are stored."""
        return self._by_kind.get((api_version, kind))

    def of_key(self, key: str) -> Strategy:
        """That of a key of storage; KeyError for a kind that is not served."""
        return self._stored[key.split("/", 2)[1]]

    @property
    def stored(self) -> tuple[Strategy, ...]:
        """A strategy for each kind whose objects are stored."""
        return tuple(self._stored.values())

    def resources(self) -> tuple[Resource, ...]:
        """All kinds, in all their versions."""
        return tuple(strategy.resource for strategy in self._all)

    def _arrange(self) -> None:
        self._all = (*self._fixed, *(s for some in self._more.values() for s in some))
        self._by_plural = {
            (s.resource.group, s.resource.version, s.resource.plural): s for s in self._all
        }
        kept = [s for s in self._all if s.resource.is_stored and not s.resource.stored_form]
        self._by_kind = {(s.resource.api_version, s.resource.kind): s for s in kept}
        self._stored: dict[str, Strategy] = {}
        for strategy in kept:
            self._stored.setdefault(strategy.resource.qualified, strategy)
