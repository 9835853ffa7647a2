"""Forget events that were last seen longer ago than events are kept.

When an event was last seen is read once per revision and kept beside it, so that a round over many
events costs little; a round gives other work its turn every few hundred.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from orch.server.controllers.namespaces import SELF
from orch.server.objects.backend import Backend, Target
from orch.server.objects.delete import delete
from orch.server.objects.document import decode, prefix_of
from orch.server.objects.options import DeleteOptions
from orch.server.storage.base import StorageFailed, Stored
from orch.server.strategy import events
from orch.wire.errors import ApiError
from orch.wire.records.kinds import EVENTS

log = logging.getLogger(__name__)

INTERVAL_S = 60.0
_PER_TURN = 200


async def forget_events(backend: Backend) -> None:
    """One round; what storage cannot delete now is for the next."""
    now = backend.now()
    for number, stored in enumerate(backend.storage.list(prefix_of(EVENTS)).items):
        if number % _PER_TURN == 0:
            await asyncio.sleep(0)
        seen = _last_seen(stored)
        if seen is None or now - seen <= events.LIFETIME:
            continue
        try:
            await _forget(backend, stored)
        except StorageFailed as error:
            log.debug("old events are kept for now: %s", error)
            return
        except ApiError:
            continue  # gone, or seen again meanwhile


def _last_seen(stored: Stored) -> datetime | None:
    if "last_seen" not in stored.memo:
        stored.memo["last_seen"] = events.last_seen(decode(stored))
    seen: datetime | None = stored.memo["last_seen"]
    return seen


async def _forget(backend: Backend, stored: Stored) -> None:
    namespace, name = stored.key.split("/")[-2:]
    target = Target(events.STRATEGY, SELF, namespace=namespace, name=name)
    await delete(backend, target, DeleteOptions(resource_version=str(stored.revision)))
