"""`Backend`, with which every operation works, and `ObjectTarget`, the object it is about.

The backend carries storage, clock, random names and admission, so that tests can supply any of
them. Refusals that name an object are made here.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orch.component.process.clock import Now, utc_now
from orch.server.objects.document import Document, key_of
from orch.server.storage.base import Storage, Stored
from orch.server.strategy.base import Strategy
from orch.wire import errors
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
# No vowels and no digits that look like letters: suffixes spell no words.
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5


def random_suffix() -> str:
    return "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(_SUFFIX_LENGTH))


def random_uid() -> str:
    return str(uuid.uuid4())


class ObjectTarget(NamedTuple):
    """The caller and the object: `name` is "" for a creation, `namespace` for cluster scope."""

    strategy: Strategy
    identity: Identity
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        return key_of(self.strategy.resource, self.namespace, self.name)

    def not_found(self) -> ApiError:
        resource = self.strategy.resource
        return errors.not_found(resource.plural, self.name, resource.group)

    def conflict(self, why: str = MODIFIED) -> ApiError:
        resource = self.strategy.resource
        return errors.conflict(resource.plural, self.name, why, resource.group)


# Called with the target, the new document and the replaced one, before anything is stored;
# refuses by raising ApiError.
Admission = Callable[[ObjectTarget, Document, Document | None], None]


# Called with the target and the stored object before every attempt to delete it.
DeletionAdmission = Callable[[ObjectTarget, Document], None]


def admit_every_deletion(_target: ObjectTarget, _old: Document) -> None:
    """No further rules."""


@dataclass(frozen=True, slots=True)
class Backend:
    """`admission` judges creations and changes, by the plural of their kind and after validation;
    `admit_deletion` judges deletions. Both see the very state that the write then depends on.
    """

    storage: Storage
    now: Now = utc_now
    new_uid: Callable[[], str] = random_uid
    new_suffix: Callable[[], str] = random_suffix
    admission: Mapping[str, Sequence[Admission]] = field(default_factory=dict)
    admit_deletion: DeletionAdmission = admit_every_deletion

    def admit(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError from the first check that refuses."""
        for check in self.admission.get(target.strategy.resource.plural, ()):
            check(target, new, old)

    def find(self, target: ObjectTarget) -> Stored:
        """The object; ApiError 404."""
        stored = self.storage.get(target.key)
        if stored is None:
            raise target.not_found()
        return stored
