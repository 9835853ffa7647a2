from __future__ import annotations

from orch.server.controllers import namespaces
from orch.server.objects.backend import Backend


async def test_the_first_namespaces_are_made_once(backend: Backend) -> None:
    await namespaces.make_namespaces(backend)
    first = backend.storage.revision
    names = [stored.key for stored in backend.storage.list("/namespaces/").items]
    assert names == [
        "/namespaces/default",
        "/namespaces/orch-node-lease",
        "/namespaces/orch-system",
    ]
    await namespaces.make_namespaces(backend)
    assert backend.storage.revision == first
