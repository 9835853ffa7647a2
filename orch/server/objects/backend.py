"""`Backend`, with which every operation works: storage, clock, random names and admission.

Tests can supply any of them.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from orch.component.process.clock import Now, utc_now
from orch.server.objects.document import Admission, Document, ObjectTarget
from orch.server.storage.base import KeyMissing, RevisionMismatch, Storage, Stored, Write

# No vowels and no digits that look like letters: suffixes spell no words.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
TRIES = 16  # each lost to another writer; then the client has to retry

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


@dataclass(frozen=True, slots=True)
class Backend:
    """`admission` are the steps of creations and changes, in order, by the plural of their kind;
    `admit_deletion` judges deletions, by the very state that is deleted. `charge` comes last,
    because it judges the data.
    """

    storage: Storage
    now: Now = utc_now
    new_uid: Callable[[], str] = random_uid
    new_suffix: Callable[[], str] = random_suffix
    admission: Mapping[str, Sequence[Admission]] = field(default_factory=dict)
    admit_deletion: DeletionAdmission = admit_every_deletion
    charge: Charge = charge_nothing

    def admit(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError from the first check that refuses."""
        for step in self.admission.get(target.strategy.resource.plural, ()):
            step.check(target, new, old)

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
        again after it lost to another writer. ApiError 404, 409 and those of `write`.
        """
        for _ in range(TRIES):
            try:
                return await write(self.find(target))
            except KeyMissing:
                raise target.not_found() from None
            except RevisionMismatch:
                continue
        raise target.conflict()
