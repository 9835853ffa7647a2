"""Roles and bindings as the server keeps them: the index in step with storage, defaults in place.

Startup makes or completes the default roles, fills aggregated roles, then loads the index.
Afterwards informers pass the index each change, and a loop fills aggregated roles again whenever a
cluster role changed.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from orch.component.process.loops import Periodic
from orch.server.authz import defaults, reconcile
from orch.server.authz.index import RbacIndex
from orch.server.authz.rules import RoleKey, binding_of, rules_of
from orch.server.controllers.namespaces import SELF
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.delete import delete
from orch.server.objects.document import Document, ObjectTarget, decode, place_of, prefix_of
from orch.server.objects.informer import StorageInformer
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions
from orch.server.objects.selection import selectable
from orch.server.storage.base import StorageFailed, Stored
from orch.server.strategy.rbac import BINDING_STRATEGIES as BINDING_STRATEGIES
from orch.server.strategy.rbac import ROLE_STRATEGIES as ROLE_STRATEGIES
from orch.wire.errors import ApiError
from orch.wire.records.kinds import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES

log = logging.getLogger(__name__)

AGGREGATION_INTERVAL_S = 300.0  # it is also woken by changes
_AGGREGATES = b'"aggregationRule"'
_CLUSTER_ROLE, _CLUSTER_BINDING = ROLE_STRATEGIES[0], BINDING_STRATEGIES[0]


class Roles:
    """Feeds `index`, which answers; `informers` and `aggregation` are loops that must run."""

    def __init__(self, backend: Backend, index: RbacIndex, *, upstream: bool = False) -> None:
        """`upstream`: the defaults know the reference's labels too."""
        self.index = index
        self._defaults = defaults.roles(upstream=upstream)
        self._backend = backend
        storage = backend.storage
        self.informers = [
            StorageInformer(storage, CLUSTER_ROLES, self._put_cluster_role),
            StorageInformer(storage, ROLES, self._put_role),
            StorageInformer(storage, CLUSTER_ROLE_BINDINGS, self._put_binding),
            StorageInformer(storage, ROLE_BINDINGS, self._put_binding),
        ]
        self.aggregation = Periodic(
            "aggregation", self.aggregate, interval_s=AGGREGATION_INTERVAL_S
        )

    async def open(self) -> None:
        """ApiError or StorageFailed when the defaults cannot be made."""
        await asyncio.gather(*(self._make_role(role) for role in self._defaults))
        await asyncio.gather(*(self._make_binding(binding) for binding in defaults.BINDINGS))
        while await self._aggregate_once():
            pass
        for informer in self.informers:
            informer.load()

    async def aggregate(self) -> None:
        """Fill every aggregated role; failures are left to the next change."""
        try:
            while await self._aggregate_once():
                pass
        except (ApiError, StorageFailed) as error:
            log.warning("aggregated roles are not up to date: %s", error)

    async def _aggregate_once(self) -> bool:
        """Fill each role once; returns whether any changed: others may aggregate it in turn."""
        stored = self._backend.storage.list(prefix_of(CLUSTER_ROLES)).items
        documents = [decode(item) for item in stored if _AGGREGATES in item.data]
        aggregated = [role for role in documents if reconcile.is_aggregated(role)]
        selectors = [selector for role in aggregated for selector in reconcile.selectors_of(role)]
        # Labels are cached beside each object: roles that no selector matches are not parsed.
        selected = [
            decode(item)
            for item in stored
            if any(s.matches(selectable(_CLUSTER_ROLE, item).labels) for s in selectors)
        ]
        changed = False
        for role in aggregated:
            rules = reconcile.aggregated_rules(role, selected)
            if rules != (role.get("rules") or []):
                name = role["metadata"]["name"]
                target = ObjectTarget(_CLUSTER_ROLE, SELF, name=name)
                await modify(self._backend, target, partial(_set, rules))
                changed = True
        return changed

    async def _make_role(self, wanted: Document) -> None:
        target = ObjectTarget(_CLUSTER_ROLE, SELF, name=wanted["metadata"]["name"])
        stored = self._backend.storage.get(target.key)
        if stored is None:
            await self._create(target, wanted)
        elif reconcile.role(now := decode(stored), wanted) != now:
            await modify(self._backend, target, lambda stored: reconcile.role(stored, wanted))

    async def _make_binding(self, wanted: Document) -> None:
        target = ObjectTarget(_CLUSTER_BINDING, SELF, name=wanted["metadata"]["name"])
        stored = self._backend.storage.get(target.key)
        if stored is not None:
            now = decode(stored)
            completed = reconcile.binding(now, wanted)
            if completed == now:
                return
            if completed is not None:
                await modify(
                    self._backend, target, lambda now: reconcile.binding(now, wanted) or now
                )
                return
            uid = decode(stored)["metadata"]["uid"]
            await delete(self._backend, target, DeleteOptions(uid=uid))
        await self._create(target, wanted)

    async def _create(self, target: ObjectTarget, wanted: Document) -> None:
        document = {**wanted, "metadata": dict(wanted["metadata"])}
        try:
            await create(self._backend, target, document)
        except ApiError as error:
            if error.reason != "AlreadyExists":  # another server on the same storage was faster
                raise

    def _put_cluster_role(self, key: str, stored: Stored | None) -> None:
        self._put_role(key, stored)
        self.aggregation.wake()

    def _put_role(self, key: str, stored: Stored | None) -> None:
        role = RoleKey(*place_of(key))
        if stored is None:
            self.index.drop_role(role)
        else:
            self.index.put_role(role, rules_of(decode(stored)))

    def _put_binding(self, key: str, stored: Stored | None) -> None:
        if stored is None:
            self.index.drop_binding(place_of(key))
        else:
            self.index.put_binding(binding_of(decode(stored)))


def _set(rules: list[Document], role: Document) -> Document:
    return {**role, "rules": rules}
