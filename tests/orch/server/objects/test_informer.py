from __future__ import annotations

from orch.component.process import loops
from orch.server.objects.backend import Backend
from orch.server.objects.delete import delete
from orch.server.objects.informer import StorageInformer
from orch.server.objects.options import DeleteOptions
from orch.server.storage.base import Stored
from orch.wire.records.kinds import NODES
from tests.orch.server.objects.places import made, place


class Seen:
    """What a informer told, by name."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.told = 0

    def apply(self, key: str, stored: Stored | None) -> None:
        name = key.rpartition("/")[2]
        self.told += 1
        if stored is None:
            del self.now[name]
        else:
            self.now[name] = stored.revision


async def node(backend: Backend, name: str) -> None:
    await made(backend, "Node", {"metadata": {"name": name}})


async def test_it_tells_what_is_there_then_every_change_before_the_writer_goes_on(
    backend: Backend,
) -> None:
    seen = Seen()
    informer = StorageInformer(backend.storage, NODES, seen.apply)
    await node(backend, "a")
    informer.load()
    assert set(seen.now) == {"a"}
    task = loops.spawn(informer.run(), name="informer")
    await node(backend, "b")
    assert set(seen.now) == {"a", "b"}
    await delete(backend, place("Node", "a"), DeleteOptions())
    assert set(seen.now) == {"b"}
    await made(backend, "Lease", {"metadata": {"name": "other"}})
    assert seen.told == 3
    backend.storage.end_watches()
    await task


async def test_after_falling_behind_it_reads_everything_again(backend: Backend) -> None:
    seen = Seen()
    informer = StorageInformer(backend.storage, NODES, seen.apply)
    await node(backend, "a")
    await node(backend, "b")
    informer.load()
    await delete(backend, place("Node", "a"), DeleteOptions())
    await node(backend, "c")
    backend.storage.compact(0)
    task = loops.spawn(informer.run(), name="informer")
    await node(backend, "d")
    assert set(seen.now) == {"b", "c", "d"}
    await loops.cancel(task)
