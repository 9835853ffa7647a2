"""The kinds that users define, served as long as their definitions exist.

Follows the definitions in storage, compiles their schemas in a thread, and puts the kinds among
those that are served; tells in the definition's status what came of it. When a definition is
deleted, its objects go first, then it does, and watches of them end. Each server does this by
itself: what they write is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog
from orch.server import turns
from orch.server.controllers.garbage_collector import collect
from orch.server.controllers.namespaces import SELF, delete_contents
from orch.server.customresources.kinds import strategies_of
from orch.server.customresources.names import Definition, Naming, decide, with_verdict
from orch.server.objects.backend import Backend
from orch.server.objects.document import Document, ObjectTarget, decode, place_of, prefix_of
from orch.server.objects.informer import StorageInformer
from orch.server.objects.modify import modify
from orch.server.storage.base import StorageFailed, StorageFull, Stored
from orch.server.strategy import definitions
from orch.server.strategy.base import Strategy
from orch.wire import times
from orch.wire.errors import ApiError
from orch.wire.records.kinds import CUSTOM_RESOURCE_DEFINITIONS
from orch.wire.structural.schema import Schema

log = logging.getLogger(__name__)

INTERVAL_S = 1.0  # it is also woken by changes
_OTHERS_LAG_S = 1.0  # of servers on the same storage


@dataclass(frozen=True, slots=True)
class _Read:
    """A definition as it was read, with the schemas of its versions."""

    revision: int
    definition: Definition
    schemas: dict[str, Schema]


class CustomKinds:
    """`open` before anything is served; `informer` and `loop` must run. `is_shared`: other
    servers on the same storage see a little later that a definition is being deleted. `upstream`:
    owner references may use the reference's group names.
    """

    def __init__(
        self, backend: Backend, *, is_shared: bool = False, upstream: bool = False
    ) -> None:
        self._upstream = upstream
        self._backend = backend
        self._others_lag_s = _OTHERS_LAG_S if is_shared else 0.0
        self._stored: dict[str, Stored] = {}  # by name
        self._read: dict[str, _Read] = {}
        self._broken: dict[str, int] = {}  # by name, the revision that cannot be read
        self._served: dict[str, tuple[object, ...]] = {}  # by name, what was served
        self._is_due = True  # whether there is anything to do
        self._going: dict[str, float] = {}  # by name, since when, by the loop's time
        self._failed = OnceLog(log)
        self.informer = StorageInformer(backend.storage, CUSTOM_RESOURCE_DEFINITIONS, self._changed)
        self.loop = Periodic("custom kinds", self.step, interval_s=INTERVAL_S)

    async def open(self) -> None:
        """Serve what is defined already."""
        self.informer.load()
        await self.step()

    def _changed(self, key: str, stored: Stored | None) -> None:
        _, name = place_of(key)
        if stored is not None:
            self._stored[name] = stored
        else:
            self._stored.pop(name, None)
            self._withdraw(name)
        self._is_due = True
        self.loop.wake()

    def _withdraw(self, name: str) -> None:
        """Serve a kind no longer."""
        found = self._backend.kinds.more.get(name)
        held: dict[str, Any]
        for held in (self._read, self._broken, self._served, self._going):
            held.pop(name, None)
        if found:
            self._backend.kinds.put(name, ())
            self._backend.storage.end_watches(prefix_of(found[0].resource))
            log.info("%s are not served any longer: their definition is gone", name)

    async def step(self) -> None:
        """Serve what changed, tell it, and delete what is to go."""
        if not self._is_due:
            return
        self._is_due = False
        for name, stored in [*self._stored.items()]:
            await self._read_again(name, stored)
        read_all = {name: read for name, read in self._read.items() if name in self._stored}
        verdicts = decide([read.definition for read in read_all.values()])
        async for name, read in turns.in_turns(read_all.items()):
            if self._read.get(name) is read:
                self._serve(name, read, verdicts[name])
        for name, read in read_all.items():
            try:
                await self._tell(name, read, verdicts[name])
                if read.definition.is_going:
                    self._is_due = True
                    await self._clear(name)
                self._failed.recovered("%s is served as it is defined", name, subject=name)
            except (StorageFailed, ApiError, TimeoutError) as error:
                self._is_due = True
                if not (isinstance(error, ApiError) and error.code in (404, 409)):
                    text = "the definition %s is not up to date: %s"
                    self._failed.failed(text, name, error, subject=name)

    async def _read_again(self, name: str, stored: Stored) -> None:
        known = self._read.get(name)
        if stored.revision in (self._broken.get(name), known and known.revision):
            return
        try:
            read = await turns.aside(partial(_read, stored, known))
        except TimeoutError:  # others have much to compute
            self._is_due = True
            return
        except (ValueError, KeyError, TypeError) as error:  # stored by another release
            self._broken[name] = stored.revision
            text = "the definition %s cannot be read, its kind stays as it is: %r"
            self._failed.failed(text, name, error, subject=name)
            return
        if self._stored.get(name) is stored:
            self._read[name] = read

    def _serve(self, name: str, read: _Read, verdict: Naming) -> None:
        document = read.definition.document
        about = (
            document["metadata"]["uid"],
            document["metadata"].get("generation"),
            document["metadata"].get("deletionTimestamp"),
            (document.get("status") or {}).get("storedVersions"),
            dict(verdict.names),
        )
        if self._served.get(name) == about:
            return
        self._served[name] = about
        made = strategies_of(document, verdict.names, read.schemas) if verdict.names else ()
        if made and name not in self._backend.kinds.more:
            log.info("serving %s, versions %s", name, ", ".join(s.resource.version for s in made))
        self._backend.kinds.put(name, made)

    async def _tell(self, name: str, read: _Read, verdict: Naming) -> None:
        """Write the verdict into the definition, if it says something else."""
        document = read.definition.document
        now = times.format_time(self._backend.now())
        if with_verdict(document, verdict, now) == document:
            return
        target = ObjectTarget(definitions.STRATEGY, SELF, name=name, subresource="status")
        if not document["metadata"].get("uid"):
            return

        def change(current: Document) -> Document:
            if current["metadata"]["uid"] != document["metadata"]["uid"]:
                return current  # another one of the same name
            return with_verdict(current, verdict, now)

        await modify(self._backend, target, change)

    async def _clear(self, name: str) -> None:
        """Delete the objects of a kind whose definition is being deleted; then it goes itself."""
        loop = asyncio.get_running_loop()
        since_s = self._going.setdefault(name, loop.time())
        found = self._backend.kinds.more.get(name)
        if found:
            await delete_contents(self._backend, found[0], "")
            if self._has_objects(found[0]) or loop.time() < since_s + self._others_lag_s:
                return
            # Every creation that was let through before is visible after this.
            with contextlib.suppress(StorageFull):
                await self._backend.storage.check()
            if self._has_objects(found[0]):
                return
            # What they owned goes while it can still be told that they are gone.
            await collect(self._backend, upstream=self._upstream)
        target = ObjectTarget(definitions.STRATEGY, SELF, name=name)
        await modify(self._backend, target, _released)

    def _has_objects(self, strategy: Strategy) -> bool:
        return bool(self._backend.storage.list(prefix_of(strategy.resource)).items)


def _read(stored: Stored, known: _Read | None) -> _Read:
    """The definition, with the compiled schemas; those that are known are not compiled again."""
    document = decode(stored)
    schemas = {}
    for version in document["spec"]["versions"]:
        name, described = version["name"], version["schema"]["openAPIV3Schema"]
        before = known.schemas.get(name) if known else None
        same = before is not None and before.described == described
        schemas[name] = before if before is not None and same else Schema(described)
    return _Read(stored.revision, Definition(document, len(stored.data)), schemas)


def _released(document: Document) -> Document:
    metadata = dict(document["metadata"])
    held = metadata.get("finalizers") or ()
    metadata["finalizers"] = [each for each in held if each != definitions.CLEANUP]
    return {**document, "metadata": metadata}
