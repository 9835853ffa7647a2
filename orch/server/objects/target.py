"""The object that a request is about, its caller, and the refusals that name it; pure."""

from __future__ import annotations

from typing import NamedTuple

from orch.server.objects.document import key_of
from orch.server.strategy.base import Strategy
from orch.wire import errors
from orch.wire.errors import ApiError, Cause
from orch.wire.records.authentication import Identity

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


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

    def forbidden(self, name: str, why: str, causes: tuple[Cause, ...] = ()) -> ApiError:
        """`name` is that of the object, which a target for a creation does not have."""
        resource = self.strategy.resource
        return errors.forbidden_object(resource.plural, name, why, resource.group, causes)
