"""Privilege escalation: writers of roles and bindings must hold the rights they grant; pure.

As apiserver §3.3. Exempt are the administrators' group and callers with `escalate` on the role or
`bind` on it. The check sees the object as it will be stored, so the result of a patch
is judged too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orch.server.authz import cover
from orch.server.authz.authorizer import Authorizer
from orch.server.authz.cover import TooManyParts
from orch.server.authz.index import RbacIndex
from orch.server.authz.rules import ALL, Rule, role_key_of, rules_of
from orch.server.objects.document import Document, ObjectTarget
from orch.server.request.attributes import request_about
from orch.wire import errors
from orch.wire.errors import ApiError
from orch.wire.names import GROUP_MASTERS, RBAC_GROUP
from orch.wire.records.kinds import CLUSTER_ROLES, ROLES, Resource

_EVERYTHING = (Rule((ALL,), (ALL,), (ALL,)), Rule((ALL,), urls=(ALL,)))
_SHOWN = 500  # missing parts in a refusal
_HOUSEKEEPING = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")


class RoleGuard:
    """The `Admission` of roles and bindings."""

    def __init__(self, authorizer: Authorizer, index: RbacIndex) -> None:
        self._authorizer = authorizer
        self._index = index

    def judges(self, resource: Resource) -> bool:
        return resource.group == RBAC_GROUP

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 when the caller would grant rights without holding them; 404 for no role."""
        if GROUP_MASTERS in target.identity.groups:
            return
        if old is not None and _substance(new) == _substance(old):
            return
        if target.strategy.resource in (CLUSTER_ROLES, ROLES):
            self._check_role(target, new, old)
        else:
            self._check_binding(target, new)

    def _check_role(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        if self._may(target, "escalate", target.strategy.resource, target.name):
            return
        self._require_held(target, new, rules_of(new))
        if _aggregates(new) or _aggregates(old):
            self._require_held(target, new, _EVERYTHING)

    def _check_binding(self, target: ObjectTarget, new: Document) -> None:
        role = role_key_of(new)
        resource = ROLES if role.namespace else CLUSTER_ROLES
        if self._may(target, "bind", resource, role.name):
            return
        rules = self._index.role(role)
        if rules is None:
            raise errors.not_found(resource.plural, role.name, resource.group)
        self._require_held(target, new, rules)

    def _may(self, target: ObjectTarget, verb: str, resource: Resource, name: str) -> bool:
        info = request_about(verb, resource, target.namespace, name)
        return self._authorizer.decide(target.identity, info).allowed

    def _require_held(self, target: ObjectTarget, new: Document, rules: Sequence[Rule]) -> None:
        held = self._index.held(target.identity, target.namespace)
        try:
            lacking = cover.missing(cover.bounded(held.rules), rules, at_most=_SHOWN)
        except TooManyParts as error:
            raise _refusal(target, new, str(error)) from None
        if not lacking:
            return
        caller = target.identity
        text = f'user "{caller.name}" (groups={cover.quoted(caller.groups)}) is attempting to grant'
        text += f" RBAC permissions not currently held:\n{cover.text_of(lacking)}"
        if held.errors:
            text += f"; resolution errors: {cover.quoted(held.errors)}"
        raise _refusal(target, new, text)


def _refusal(target: ObjectTarget, new: Document, text: str) -> ApiError:
    return target.forbidden(str(new["metadata"].get("name") or ""), text)


def _aggregates(role: Document | None) -> bool:
    return role is not None and role.get("aggregationRule") is not None


def _substance(document: Document) -> dict[str, Any]:
    """All but the fields that a garbage collector changes."""
    metadata = {k: v for k, v in document["metadata"].items() if k not in _HOUSEKEEPING}
    return {**document, "metadata": metadata}
