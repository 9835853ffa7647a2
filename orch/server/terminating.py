"""Empty the namespaces that are being deleted, then let them go.

A namespace is Terminating from its deletion on and takes no new objects. Each round deletes what
is in it (pods with their grace, so that agents stop them) and, once nothing is left, takes the
server's finalizer off, with which the namespace disappears.
"""

from __future__ import annotations

import logging

from orch.server.bootstrap import SELF
from orch.server.resources.backend import Backend, Target
from orch.server.resources.delete import delete_collection
from orch.server.resources.document import Document, decode, prefix_of
from orch.server.resources.modify import modify
from orch.server.resources.options import DeleteOptions, WriteOptions
from orch.server.resources.selection import Selection
from orch.server.storage.base import StorageFailed
from orch.server.strategy import namespaces
from orch.server.strategy.base import Strategy
from orch.server.strategy.table import STRATEGIES
from orch.wire.errors import ApiError
from orch.wire.kinds import NAMESPACES

log = logging.getLogger(__name__)

INTERVAL_S = 1.0


async def empty_terminating(backend: Backend) -> None:
    """One round over all namespaces; failures of storage are for the next round."""
    for stored in backend.storage.list(prefix_of(NAMESPACES)).items:
        if b'"deletionTimestamp"' not in stored.data:
            continue
        document = decode(stored)
        if not namespaces.is_terminating(document):
            continue
        try:
            await _empty(backend, document)
        except StorageFailed as error:
            log.debug("namespace %s is not empty yet: %s", document["metadata"]["name"], error)
        except ApiError as error:
            log.warning("namespace %s is not empty yet: %s", document["metadata"]["name"], error)


async def _empty(backend: Backend, document: Document) -> None:
    name = document["metadata"]["name"]
    # Whatever was on its way into storage before the namespace closed is visible after this.
    await backend.storage.check()
    left = 0
    for strategy in STRATEGIES:
        if strategy.resource.namespaced and strategy.resource.is_stored:
            left += await _delete_contents(backend, strategy, name)
    if left:
        return
    target = Target(namespaces.STRATEGY, SELF, name=name, subresource="finalize")
    if namespaces.FINALIZER in (document.get("spec") or {}).get("finalizers", ()):
        await modify(backend, target, _without_finalizer, WriteOptions())
        log.info("namespace %s is empty and deleted", name)


async def _delete_contents(backend: Backend, strategy: Strategy, namespace: str) -> int:
    """How many objects are still there afterwards."""
    target = Target(strategy, SELF, namespace=namespace)
    await delete_collection(backend, target, Selection(strategy), DeleteOptions())
    return len(backend.storage.list(prefix_of(strategy.resource, namespace)).items)


def _without_finalizer(document: Document) -> Document:
    kept = [f for f in document["spec"]["finalizers"] if f != namespaces.FINALIZER]
    return {**document, "spec": {**document["spec"], "finalizers": kept}}
