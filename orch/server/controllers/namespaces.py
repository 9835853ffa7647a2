"""Namespaces: made at startup (with the system's PriorityClasses), given a default service account,
emptied when deleted.

A namespace that is being deleted loses its contents (pods with their grace period, so that agents
stop them); once nothing is left, the server removes its finalizer, and the namespace disappears.
Every other namespace gets the service account `default`, under which pods run that name none.
When pod security is tightened, the pods that are already there are looked through.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from datetime import datetime
from functools import partial

from orch.server import turns
from orch.server.admission.pod_security.survey import Survey
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.delete import decide, delete_collection
from orch.server.objects.document import Document, ObjectTarget, decode, prefix_of
from orch.server.objects.modify import modify
from orch.server.objects.options import DeleteOptions
from orch.server.objects.selection import Selection
from orch.server.storage.base import Storage, StorageFailed, Stored
from orch.server.strategy import namespaces, priority_classes, table
from orch.server.strategy.base import Strategy
from orch.server.strategy.table import STRATEGIES
from orch.wire.errors import ApiError
from orch.wire.names import DEFAULT_SERVICE_ACCOUNT, GROUP_MASTERS, USER_APISERVER
from orch.wire.records.authentication import Identity
from orch.wire.records.kinds import NAMESPACES, PODS

log = logging.getLogger(__name__)

SELF = Identity(USER_APISERVER, (GROUP_MASTERS,))
_CONTENTS = tuple(s for s in STRATEGIES if s.resource.namespaced and s.resource.is_stored)


async def make_initial_objects(backend: Backend) -> None:
    """Create the initial namespaces and PriorityClasses that are missing."""
    for name in namespaces.AT_START:
        await _make(backend, ObjectTarget(namespaces.STRATEGY, SELF, name=name), {})
    for name, (value, description) in priority_classes.SYSTEM.items():
        target = ObjectTarget(priority_classes.STRATEGY, SELF, name=name)
        await _make(backend, target, {"value": value, "description": description})


async def _make(backend: Backend, target: ObjectTarget, document: Document) -> None:
    if backend.storage.get(target.key) is not None:
        return
    try:
        await create(backend, target, document)
    except ApiError as error:
        if error.code != 409:
            raise
        return  # another server on the same storage starts too
    log.info("created the %s %s", target.strategy.resource.singular, target.name)


INTERVAL_S = 1.0


async def empty_terminating(backend: Backend) -> None:
    """One round over all namespaces; failures are left to the next round."""
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
    for strategy in _CONTENTS:
        await _delete_contents(backend, strategy, name)
    if _has_contents(backend.storage, name):
        return
    # Every write queued before the namespace began to terminate is visible after this. It comes
    # last, because a full disk that refuses it may still delete.
    await backend.storage.check()
    if _has_contents(backend.storage, name):
        return
    target = ObjectTarget(namespaces.STRATEGY, SELF, name=name, subresource="finalize")
    if namespaces.FINALIZER in (document.get("spec") or {}).get("finalizers", ()):
        await modify(backend, target, _without_finalizer)
        log.info("namespace %s is empty: deleted", name)


def _has_contents(storage: Storage, namespace: str) -> bool:
    return any(storage.list(prefix_of(kind.resource, namespace)).items for kind in _CONTENTS)


async def _delete_contents(backend: Backend, strategy: Strategy, namespace: str) -> None:
    """Delete the contents of one kind.

    Those that only wait for their finalizers are looked at once: a tenant may leave 50,000 of them.
    """
    prefix = prefix_of(strategy.resource, namespace)
    for_good = partial(_waits, strategy, backend.now())
    if any([not item.once("waits", for_good)
            async for item in turns.in_turns(backend.storage.list(prefix).items)]):  # fmt: skip
        target = ObjectTarget(strategy, SELF, namespace=namespace)
        await delete_collection(backend, target, Selection(strategy), DeleteOptions())


def _waits(strategy: Strategy, now: datetime, stored: Stored) -> bool:
    """Whether deleting it again would change nothing."""
    document = decode(stored)
    return decide(strategy, document, DeleteOptions(), now).marked is document


def _without_finalizer(document: Document) -> Document:
    kept = [f for f in document["spec"]["finalizers"] if f != namespaces.FINALIZER]
    return {**document, "spec": {**document["spec"], "finalizers": kept}}


async def make_default_accounts(backend: Backend) -> None:
    """One round; failures are left to the next."""
    for stored in backend.storage.list(prefix_of(NAMESPACES)).items:
        namespace = stored.key.rpartition("/")[2]
        target = ObjectTarget(
            table.SERVICE_ACCOUNT_STRATEGY, SELF, namespace=namespace, name=DEFAULT_SERVICE_ACCOUNT
        )
        if backend.storage.get(target.key) or namespaces.is_terminating(decode(stored)):
            continue
        try:
            await create(backend, target, {})
        except StorageFailed as error:
            log.debug("namespace %s has no service account yet: %s", namespace, error)
        except ApiError as error:
            if error.reason in ("AlreadyExists", "Forbidden"):
                continue  # another server of this cluster was quicker, or a quota has no room
            log.warning("namespace %s has no service account yet: %s", namespace, error)


_SURVEY_MAX = 3000  # pods
_SURVEY_S = 1.0
_SLICE_S = 0.005


async def survey_pods(storage: Storage, survey: Survey) -> list[str]:
    """The warnings about the pods of a namespace: the first 3000, or as many as a second allows.

    Goes through them in slices, so that nobody else waits meanwhile.
    """
    pods = storage.list(prefix_of(PODS, survey.namespace)).items
    waiting = deque(pods)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + _SURVEY_S
    pause_s = loop.time() + _SLICE_S
    while waiting and survey.checked < _SURVEY_MAX and loop.time() < end_s:
        stored = waiting.popleft()
        if not survey.add(decode(stored)):
            waiting.append(stored)
        if loop.time() >= pause_s:
            await asyncio.sleep(0)
            pause_s = loop.time() + _SLICE_S
    return survey.warnings(len(pods))
