"""Targets and documents for tests of the operations."""

from __future__ import annotations

from typing import Any

from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.document import Document, ObjectTarget, decode
from orch.server.objects.options import WriteOptions
from orch.server.strategy.base import Strategy
from orch.server.strategy.table import STRATEGIES
from orch.wire.records.authentication import Identity

ADMIN = Identity("admin", ("system:masters",))
BY_KIND = {
    strategy.resource.kind: strategy for strategy in STRATEGIES if not strategy.resource.stored_form
}


def place(
    kind: str, name: str = "", subresource: str = "", namespace: str = "default"
) -> ObjectTarget:
    strategy: Strategy = BY_KIND[kind]
    scope = namespace if strategy.resource.namespaced else ""
    return ObjectTarget(strategy, ADMIN, scope, name, subresource)


def pod(name: str = "p1", **spec: Any) -> Document:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


async def made(backend: Backend, kind: str, document: Document) -> Document:
    """Create an object and read it back."""
    return decode(await create(backend, place(kind), document, WriteOptions()))


def read(backend: Backend, target: ObjectTarget) -> Document | None:
    stored = backend.storage.get(target.key)
    return None if stored is None else decode(stored)
