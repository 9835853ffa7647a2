"""`Backend`, with which every operation works: storage, clock, random names and admission.

Tests can supply any of them.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from orch.component.http.fair_queue import Bounds, Turns
from orch.component.process.clock import Now, utc_now
from orch.server import turns
from orch.server.asking import answered
from orch.server.objects.document import (
    Admission,
    Attempt,
    Document,
    ObjectTarget,
    Settle,
    Webhooks,
)
from orch.server.storage.base import KeyMissing, RevisionMismatch, Storage, Stored, Write
from orch.server.strategy.table import ServedKinds

# No vowels and no digits that look like letters: suffixes spell no words.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
TRIES = 16  # each lost to another writer; then the client has to retry

OTHERS = ""  # kinds that admission does not name

# Of collections, by all callers, in one turn of the event loop: each computes for 0.1 to 0.2 ms
# until it waits for storage, and others' requests need several turns.
DELETIONS_A_TURN = 8

Result = TypeVar("Result")


def random_suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_LENGTH))


def random_uid() -> str:
    return str(uuid.uuid4())


# Called with the target and the stored object before every attempt to delete it.
DeletionAdmission = Callable[[ObjectTarget, Document], None]


def admit_every_deletion(_target: ObjectTarget, _old: Document) -> None:
    """No further rules."""


# Held around a write that may grow, given the target, the document and a Write of it (`expected` 0
# creates it); gives the writes to make together with it, or refuses by ApiError.
Charge = Callable[[ObjectTarget, Document, Write], AbstractAsyncContextManager[Sequence[Write]]]


@asynccontextmanager
async def charge_nothing(*_write: object) -> AsyncIterator[Sequence[Write]]:
    """No bounds and no quotas."""
    yield ()


_ONE_AT_A_TIME = Bounds(seats=1, wait_s=300.0)


def _turns_at_deletions() -> Turns:
    return Turns(Bounds(starts_per_turn=DELETIONS_A_TURN, wait_s=300.0))


async def prepare_nothing(*_creation: object) -> None:
    """Creations need nothing."""


async def settled(document: Document) -> Document:
    """It fits as it is."""
    return document


@dataclass(frozen=True, slots=True)
class Backend:
    """`kinds` are served. `before_creation` may make what a new object needs, but in a dry run.
    `admission` are the steps of creations and changes, in order, by the qualified name of their
    kind, or those of OTHERS; `admit_deletion` judges deletions, by the very state that is deleted.
    `charge` comes last, because it judges the data. `webhooks` are asked after `admission`, which
    sees again what they changed. `deletions` of collections begin in turns. Writes of an object
    that lost to another are made again one by one, by `repetitions`: at once most would lose.
    """

    storage: Storage
    kinds: ServedKinds = field(default_factory=ServedKinds)
    now: Now = utc_now
    new_uid: Callable[[], str] = random_uid
    new_suffix: Callable[[], str] = random_suffix
    before_creation: Callable[[Backend, ObjectTarget, Document], Awaitable[None]] = prepare_nothing
    admission: Mapping[str, Sequence[Admission]] = field(default_factory=dict)
    admit_deletion: DeletionAdmission = admit_every_deletion
    charge: Charge = charge_nothing
    webhooks: Webhooks | None = None
    deletions: Turns = field(default_factory=_turns_at_deletions)
    repetitions: WeakValueDictionary[str, Turns] = field(default_factory=WeakValueDictionary)

    def admit(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError from the first check that refuses."""
        steps = self.admission.get(target.strategy.resource.qualified)
        for step in self.admission.get(OTHERS, ()) if steps is None else steps:
            step.check(target, new, old)

    async def admitted(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """`admit`, by steps that may have to ask elsewhere what the caller may do."""
        await answered(partial(self.admit, target, new, old))

    def concerns_webhooks(self, target: ObjectTarget, operation: str) -> bool:
        """Whether any webhook might be asked."""
        hooks = self.webhooks
        return hooks is not None and hooks.exist and hooks.concern(target, operation)

    async def ask_webhooks(
        self, target: ObjectTarget, attempt: Attempt, settle: Settle | None = None
    ) -> Document | None:
        """The document of the attempt, as webhooks made it; ApiError from the first that refuses.

        `settle` is called with what they made of it, before others judge that.
        """
        hooks = self.webhooks
        if hooks is None or not self.concerns_webhooks(target, attempt.operation):
            return attempt.new
        attempt = await hooks.complete(target, attempt, settle or settled)
        await hooks.judge(target, attempt)
        return attempt.new

    def find(self, target: ObjectTarget) -> Stored:
        """The object; ApiError 404."""
        stored = self.storage.get(target.key)
        if stored is None:
            raise target.not_found()
        return stored

    async def write_current(
        self, target: ObjectTarget, write: Callable[[Stored], Awaitable[Result]]
    ) -> Result:
        """The result of `write`, which is given the current object and writes only over that one;
        again in its turn after it lost to another writer. ApiError 404, 409 and those of `write`.
        """
        for number in range(TRIES):
            try:
                async with self._repetition(target.key) if number else nullcontext():
                    return await write(self.find(target))
            except KeyMissing:
                raise target.not_found() from None
            except RevisionMismatch:
                continue
        raise target.conflict()

    def _repetition(self, key: str) -> AbstractAsyncContextManager[None]:
        return self.repetitions.setdefault(key, Turns(_ONE_AT_A_TIME)).hold(turns.owner())
