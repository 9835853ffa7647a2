from __future__ import annotations

from orch.server.controllers import namespaces
from orch.server.objects.backend import Backend


async def test_the_first_objects_are_made_once(backend: Backend) -> None:
    await namespaces.make_initial_objects(backend)
    first = backend.storage.revision
    names = [stored.key for stored in backend.storage.list("/namespaces/").items]
    assert names == [
        "/namespaces/default",
        "/namespaces/orch-node-lease",
        "/namespaces/orch-system",
    ]
    classes = [
        stored.key for stored in backend.storage.list("/priorityclasses.scheduling.orch.io/").items
    ]
    assert [key.rpartition("/")[2] for key in classes] == [
        "system-cluster-critical",
        "system-node-critical",
    ]
    await namespaces.make_initial_objects(backend)
    assert backend.storage.revision == first
