"""The steps of admission in their order, and the backend that takes every creation and change
through them. What a step asks is answered from storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from orch.server import turns
from orch.server.admission import certificates, service_accounts
from orch.server.admission.certificates import CertificateRequests
from orch.server.admission.limit_ranges import LimitRanger
from orch.server.admission.node_restriction import CreationGuard, NodeRestriction
from orch.server.admission.pod_resize import PodResize
from orch.server.admission.priority import Priorities
from orch.server.admission.role_guard import RoleGuard
from orch.server.admission.runtime_classes import RuntimeClasses
from orch.server.admission.service_accounts import ServiceAccounts
from orch.server.admission.webhooks.hooks import WebhookBound
from orch.server.authz.authorizer import Authorizer
from orch.server.authz.index import RbacIndex
from orch.server.objects.backend import OTHERS, Backend, random_suffix
from orch.server.objects.document import Admission, Document, decode, key_of, prefix_of
from orch.server.storage.base import Storage, Stored
from orch.server.strategy import namespaces
from orch.wire import raw
from orch.wire.records.configuration import CustomObject
from orch.wire.records.kinds import (
    NAMESPACES,
    NODES,
    RESOURCES,
    SERVICE_ACCOUNTS,
    SIGNING_REQUESTS,
    Resource,
)

# A kind that is not of the table: such kinds come and go, and the same steps judge them all.
_ANOTHER = Resource("", "v1", "(others)", "(other)", CustomObject, True, own_kind="(Other)")


def steps(
    storage: Storage, authorizer: Authorizer, index: RbacIndex, *, tokens: bool
) -> tuple[Admission, ...]:
    """All but pod security, which comes last; `tokens`: pods are given theirs."""
    return (
        ServiceAccounts(partial(_account, storage), random_suffix if tokens else None),
        RuntimeClasses(partial(_documents, storage)),
        LimitRanger(partial(_documents, storage), turns.aside),
        Priorities(partial(_documents, storage)),
        CreationGuard(authorizer),
        NodeRestriction(partial(_uid_of_node, storage)),
        RoleGuard(authorizer, index),
        PodResize(partial(_node, storage)),
        WebhookBound(partial(_count, storage)),
        CertificateRequests(authorizer, partial(_askers, storage)),
    )


def backend(storage: Storage, judges: Sequence[Admission]) -> Backend:
    """Storage behind these steps."""
    admission = {
        resource.qualified: tuple(step for step in judges if step.judges(resource))
        for resource in (*RESOURCES, _ANOTHER)
    }
    admission[OTHERS] = admission.pop(_ANOTHER.qualified)
    restriction = NodeRestriction(partial(_uid_of_node, storage))
    return Backend(storage, admission=admission, admit_deletion=restriction.check_deletion)


def _documents(storage: Storage, resource: Resource, namespace: str) -> list[Document]:
    """Not to be changed."""
    listed = storage.list(prefix_of(resource, namespace)).items
    return [stored.once("document", decode) for stored in listed]


def _askers(storage: Storage) -> list[str]:
    """Each request is read once, however often they are counted."""
    listed = storage.list(prefix_of(SIGNING_REQUESTS)).items
    return [stored.once("asker", _asker) for stored in listed]


def _asker(stored: Stored) -> str:
    return certificates.asker(decode(stored))


def _count(storage: Storage, resource: Resource) -> int:
    return len(storage.list(prefix_of(resource)).items)


def _node(storage: Storage, name: str) -> Document | None:
    """Not to be changed."""
    stored = storage.get(key_of(NODES, "", name))
    return None if stored is None else stored.once("document", decode)


def _uid_of_node(storage: Storage, name: str) -> str:
    return raw.text(_node(storage, name), "metadata", "uid")


def _account(storage: Storage, namespace: str, name: str) -> Document | None:
    """Empty where the namespace is missing or ends, which is refused as such, later."""
    if (stored := storage.get(key_of(SERVICE_ACCOUNTS, namespace, name))) is not None:
        return stored.once("account", _needed)
    place = storage.get(key_of(NAMESPACES, "", namespace))
    return {} if place is None or namespaces.is_terminating(decode(place)) else None


def _needed(stored: Stored) -> Document:
    return service_accounts.needed(decode(stored))


def labels_of(storage: Storage, namespace: str) -> Mapping[str, str] | None:
    stored = storage.get(key_of(NAMESPACES, "", namespace))
    return None if stored is None else decode(stored)["metadata"].get("labels") or {}
