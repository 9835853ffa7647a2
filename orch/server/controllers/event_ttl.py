"""Delete events whose last occurrence is older than the lifetime of events.

The time of the last occurrence is read once per revision and cached beside it, so that a round over
many events is cheap; a round yields to other work every few hundred.
"""

from __future__ import annotations

import logging

from orch.server import turns
from orch.server.controllers.namespaces import SELF
from orch.server.objects.backend import Backend
from orch.server.objects.delete import delete
from orch.server.objects.document import ObjectTarget, decode, place_of, prefix_of
from orch.server.objects.options import DeleteOptions
from orch.server.storage.base import StorageFailed
from orch.server.strategy import events
from orch.wire.errors import ApiError
from orch.wire.records.kinds import EVENTS

log = logging.getLogger(__name__)

INTERVAL_S = 60.0


async def expire_events(backend: Backend) -> None:
    """One round; failed deletions are left to the next."""
    now = backend.now()
    async for stored in turns.in_turns(backend.storage.list(prefix_of(EVENTS)).items):
        seen = stored.once("last_seen", lambda event: events.last_seen(decode(event), now))
        if seen is None or now - seen <= events.LIFETIME:
            continue
        try:
            target = ObjectTarget(events.STRATEGY, SELF, *place_of(stored.key))
            await delete(backend, target, DeleteOptions(resource_version=str(stored.revision)))
        except StorageFailed as error:
            log.debug("cannot delete old events yet: %s", error)
            return
        except ApiError:
            continue  # deleted, or updated meanwhile
