"""Namespaces: made at startup (with the system's PriorityClasses), emptied when deleted.

A namespace that is being deleted loses its contents (pods with their grace period, so that agents
stop them); once nothing is left, the server removes its finalizer, and the namespace disappears.
When pod security is tightened, the pods that are already there are looked through.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from orch.server.storage.base import Storage, StorageFailed, StorageFull, Stored
from orch.server.strategy import namespaces, priority_classes
from orch.server.strategy.base import Strategy
from orch.wire.errors import ApiError
from orch.wire.names import GROUP_MASTERS, USER_APISERVER
from orch.wire.records.authentication import Identity
from orch.wire.records.kinds import NAMESPACES, PODS

log = logging.getLogger(__name__)

SELF = Identity(USER_APISERVER, (GROUP_MASTERS,))


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
    for strategy in _contents(backend):
        await delete_contents(backend, strategy, name)
    if _has_contents(backend, name):
        return
    # Every write queued before the namespace began to terminate is visible after this. It comes
    # last, because a full disk that refuses it may still delete.
    with contextlib.suppress(StorageFull):
        await backend.storage.check()
    if _has_contents(backend, name):
        return
    target = ObjectTarget(namespaces.STRATEGY, SELF, name=name, subresource="finalize")
    if namespaces.FINALIZER in (document.get("spec") or {}).get("finalizers", ()):
        await modify(backend, target, _without_finalizer)
        log.info("namespace %s is empty: deleted", name)


def _contents(backend: Backend) -> list[Strategy]:
    return [strategy for strategy in backend.kinds.stored if strategy.resource.namespaced]


def _has_contents(backend: Backend, namespace: str) -> bool:
    return any(
        backend.storage.list(prefix_of(kind.resource, namespace)).items
        for kind in _contents(backend)
    )


async def delete_contents(backend: Backend, strategy: Strategy, namespace: str) -> None:
    """Delete the contents of one kind in a namespace, or in all ("").

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


_SURVEY_MAX = 3000  # pods
SURVEY_S = 1.0
_SLICE_S = 0.005


async def survey_pods(storage: Storage, survey: Survey) -> list[str]:
    """The warnings about the pods of a namespace: the first 3000, or as many as a second allows.

    Goes through them in slices, so that nobody else waits meanwhile.
    """
    pods = storage.list(prefix_of(PODS, survey.namespace)).items
    waiting = deque(pods)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + SURVEY_S
    pause_s = loop.time() + _SLICE_S
    while waiting and survey.checked < _SURVEY_MAX and loop.time() < end_s:
        stored = waiting.popleft()
        if not survey.add(decode(stored)):
            waiting.append(stored)
        if loop.time() >= pause_s:
            await asyncio.sleep(0)
            pause_s = loop.time() + _SLICE_S
    return survey.warnings(len(pods))
