"""An informer over storage: loads the objects of one kind, then passes on every change, in order.

Because storage wakes its watches before it answers a writer, the next request of that writer finds
the change applied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from orch.component.diagnostics.health import CheckFailed
from orch.server.objects.document import prefix_of
from orch.server.storage.base import Compacted, Storage, Stored, Watch
from orch.wire.records.kinds import Resource

log = logging.getLogger(__name__)

# The key of an object, and its newest state; None when it was deleted.
Apply = Callable[[str, Stored | None], None]


class StorageInformer:
    """A loop of the server, by `name`; `load` before it, once storage is open."""

    def __init__(self, storage: Storage, resource: Resource, apply: Apply) -> None:
        self.name = f"informer-{resource.plural}"
        self._storage = storage
        self._prefix = prefix_of(resource)
        self._apply = apply
        self._keys: set[str] = set()
        self._watch: Watch | None = None

    @property
    def revision(self) -> int:
        """Every change up to this one was passed on; 0 before `load`."""
        return 0 if self._watch is None else self._watch.revision

    def load(self) -> None:
        """Load everything; also after changes were missed."""
        snapshot = self._storage.list(self._prefix)
        gone = self._keys - {stored.key for stored in snapshot.items}
        for key in gone:
            self._update(key, None)
        for stored in snapshot.items:
            self._update(stored.key, stored)
        self._watch = self._storage.watch(self._prefix, snapshot.revision)

    async def run(self) -> None:
        """Apply changes until storage ends its watches."""
        if self._watch is None:
            raise AssertionError(f"{self.name} runs before `load`")
        while True:
            try:
                changes = await self._watch.changes()
            except Compacted:
                log.warning("%s fell behind: reading everything again", self.name)
                self.load()
                continue
            if changes is None:
                return
            for change in changes:
                self._update(change.key, change.current)

    def _update(self, key: str, stored: Stored | None) -> None:
        if stored is None:
            self._keys.discard(key)
        else:
            self._keys.add(key)
        self._apply(key, stored)


class SyncCheck:
    """Fails while an informer has not passed on what was stored at the check before."""

    def __init__(self, storage: Storage, informers: Sequence[StorageInformer]) -> None:
        self._storage = storage
        self._informers = informers
        self._expected = 1

    def __call__(self) -> None:
        behind = [each.name for each in self._informers if each.revision < self._expected]
        self._expected = self._storage.revision
        if behind:
            raise CheckFailed(f"behind storage: {', '.join(behind)}")
