"""Dependents follow their owners, on real storage operations."""

from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from orch.component.process import loops
from orch.server import turns
from orch.server.controllers import garbage_collector
from orch.server.controllers.garbage_collector import GarbageCollector, collect
from orch.server.objects.backend import Backend
from orch.server.objects.delete import delete
from orch.server.objects.options import DeleteOptions
from orch.server.storage.base import StorageFailed
from tests.fakes.medium import FakeMedium
from tests.orch.server.objects.places import made, place, read


def owned_by(*owners: dict[str, Any], blocks: bool = True) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for owner in owners
    ]


async def config(backend: Backend, name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "ownerReferences": owned_by(*owners)} if owners else {"name": name}
    return await made(backend, "ConfigMap", {"metadata": metadata})


async def rounds(backend: Backend, most: int = 20, *, upstream: bool = False) -> None:
    for _ in range(most):
        if not await collect(backend, upstream=upstream):
            return
    raise AssertionError("the collector finds no end")


def there(backend: Backend, *names: str) -> list[str]:
    return [name for name in names if read(backend, place("ConfigMap", name))]


async def test_what_was_owned_by_something_gone_goes_too(backend: Backend) -> None:
    node = await made(backend, "Node", {"metadata": {"name": "n1"}})
    await config(backend, "a", node)
    await config(backend, "free")
    await rounds(backend)
    assert there(backend, "a", "free") == ["a", "free"]
    await delete(backend, place("Node", "n1"), DeleteOptions(propagation="Background"))
    await rounds(backend)
    assert there(backend, "a", "free") == ["free"]


async def test_a_chain_goes_in_the_background_and_another_of_the_same_name_is_no_owner(
    backend: Backend,
) -> None:
    top = await config(backend, "top")
    middle = await config(backend, "middle", top)
    await config(backend, "leaf", middle)
    await delete(backend, place("ConfigMap", "top"), DeleteOptions())
    await config(backend, "top")
    await rounds(backend)
    assert there(backend, "top", "middle", "leaf") == ["top"]


async def test_in_the_foreground_the_owner_goes_last(backend: Backend) -> None:
    top = await config(backend, "top")
    middle = await config(backend, "middle", top)
    await config(backend, "leaf", middle)
    options = DeleteOptions(propagation="Foreground")
    deleted = await delete(backend, place("ConfigMap", "top"), options)
    assert not deleted.gone
    assert there(backend, "top", "middle", "leaf") == ["top", "middle", "leaf"]
    seen = []
    for _ in range(20):
        seen.append(there(backend, "top", "middle", "leaf"))
        if not await collect(backend):
            break
    assert seen[-1] == []
    assert ["top", "middle"] in seen


async def test_an_orphan_keeps_living_without_its_owner(backend: Backend) -> None:
    top, other = await config(backend, "top"), await config(backend, "other")
    await config(backend, "a", top)
    await config(backend, "b", top, other)
    await delete(backend, place("ConfigMap", "top"), DeleteOptions(propagation="Orphan"))
    await rounds(backend)
    assert there(backend, "top", "a", "b") == ["a", "b"]
    a, b = (read(backend, place("ConfigMap", name)) for name in "ab")
    assert a is not None
    assert b is not None
    assert not a["metadata"].get("ownerReferences")
    assert [one["name"] for one in b["metadata"]["ownerReferences"]] == ["other"]


async def test_without_dependents_nothing_waits(backend: Backend) -> None:
    for policy in ("Foreground", "Orphan"):
        await config(backend, "top")
        await delete(backend, place("ConfigMap", "top"), DeleteOptions(propagation=policy))
        await rounds(backend)
        assert there(backend, "top") == []


async def test_what_others_hold_stays_until_they_let_go(backend: Backend) -> None:
    node = await made(backend, "Node", {"metadata": {"name": "n1"}})
    metadata = {"name": "a", "ownerReferences": owned_by(node), "finalizers": ["a.io/b"]}
    await made(backend, "ConfigMap", {"metadata": metadata})
    await delete(backend, place("Node", "n1"), DeleteOptions())
    await rounds(backend)
    left = read(backend, place("ConfigMap", "a"))
    assert left is not None
    assert left["metadata"]["deletionTimestamp"]


async def test_owners_of_other_servers_are_taken_to_be_there(backend: Backend) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u"}
    await made(backend, "ConfigMap", {"metadata": {"name": "a", "ownerReferences": [owner]}})
    await rounds(backend)
    assert there(backend, "a") == ["a"]


async def test_an_owner_is_found_under_the_references_group_name_where_that_is_served(
    backend: Backend,
) -> None:
    role = await made(backend, "Role", {"metadata": {"name": "r"}, "rules": []})
    theirs = {**role, "apiVersion": "rbac.authorization.k8s.io/v1"}
    await config(backend, "a", theirs)
    await rounds(backend, upstream=True)
    assert there(backend, "a") == ["a"]
    await delete(backend, place("Role", "r"), DeleteOptions(propagation="Foreground"))
    assert read(backend, place("Role", "r"))
    await rounds(backend, upstream=True)
    assert there(backend, "a") == []
    assert read(backend, place("Role", "r")) is None


async def test_without_these_names_such_an_owner_is_one_of_another_server(backend: Backend) -> None:
    owner = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "l", "uid": "u"}
    await made(backend, "ConfigMap", {"metadata": {"name": "a", "ownerReferences": [owner]}})
    await rounds(backend)
    assert there(backend, "a") == ["a"]
    await rounds(backend, upstream=True)
    assert there(backend, "a") == []


async def test_what_has_no_namespace_is_not_collected_for_an_owner_in_one(backend: Backend) -> None:
    # K:pkg/controller/garbagecollector: an owner reference that cannot be resolved
    owner = await config(backend, "owner")
    node = {"metadata": {"name": "n1", "ownerReferences": owned_by(owner)}}
    await made(backend, "Node", node)
    await rounds(backend)
    assert read(backend, place("Node", "n1")) is not None


async def test_a_failing_medium_is_for_the_next_round(
    backend: Backend, medium: FakeMedium, caplog: pytest.LogCaptureFixture
) -> None:
    node = await made(backend, "Node", {"metadata": {"name": "n1"}})
    await config(backend, "a", node)
    await delete(backend, place("Node", "n1"), DeleteOptions())
    medium.failing = StorageFailed("disk full")
    assert not await collect(backend)
    assert caplog.messages == []  # said once, by the health of storage
    medium.failing = None
    await rounds(backend)
    assert there(backend, "a") == []


@pytest.mark.slow
async def test_many_owners_take_no_memory_beside_their_objects(backend: Backend) -> None:
    """A tenant may write 128 MiB of them; of a kind that is not served they are always there."""
    unknown = {"apiVersion": "a/v1", "kind": "A", "name": "a"}
    owners = [{**unknown, "uid": f"{number}"} for number in range(1000)]
    for number in range(30):
        metadata = {"name": f"c{number}", "ownerReferences": owners}
        await made(backend, "ConfigMap", {"metadata": metadata})
    stored = sum(len(one.data) for one in backend.storage.list("/configmaps/").items)
    await collect(backend)
    tracemalloc.start()
    try:
        assert not await collect(backend)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stored > 1_500_000
    assert kept < stored / 10, kept
    assert peak < stored, peak


async def test_what_waits_for_its_finalizers_is_not_deleted_again_and_again(
    backend: Backend,
) -> None:
    """Nobody is kept waiting for fifty thousand of them."""
    top = await config(backend, "top")
    metadata = {"name": "held", "ownerReferences": owned_by(top), "finalizers": ["a.io/b"]}
    await made(backend, "ConfigMap", {"metadata": metadata})
    await delete(backend, place("ConfigMap", "top"), DeleteOptions(propagation="Background"))
    attempts: list[str] = []
    counted = replace(backend, admit_deletion=lambda target, _old: attempts.append(target.name))
    await rounds(counted)
    await rounds(counted)
    assert attempts == ["held"]
    assert there(backend, "held") == ["held"]


async def test_long_rounds_leave_time_to_others_though_somebody_deletes_all_the_time(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40,000 objects with owners took a round of a second each, one after the other."""
    times_s: list[float] = []
    twice, loop = asyncio.Event(), asyncio.get_running_loop()

    async def long(_backend: Backend, *, upstream: bool) -> bool:
        times_s.append(loop.time())
        await asyncio.sleep(0.2)
        times_s.append(loop.time())
        if len(times_s) == 4:
            twice.set()
        return True

    monkeypatch.setattr(garbage_collector, "collect", long)
    async with asyncio.timeout(60):
        running = loops.spawn(GarbageCollector(backend).loop.run(), name="rounds")
        await twice.wait()
        await loops.cancel(running)
    assert times_s[2] - times_s[1] >= 0.55


async def test_others_have_their_turns_in_a_long_round(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dependents that wait for their finalizers, of an owner that waits for them."""
    monkeypatch.setattr(turns, "_SLICE_S", 0.0)
    top = await config(backend, "top")
    for number in range(50):
        metadata = {"name": f"d{number}", "finalizers": ["a.io/b"]}
        owners = {"ownerReferences": owned_by(top)}
        await made(backend, "ConfigMap", {"metadata": metadata | owners})
    await delete(backend, place("ConfigMap", "top"), DeleteOptions(propagation="Foreground"))
    await rounds(backend)
    steps: list[str] = []
    counted = replace(backend, admit_deletion=lambda target, _old: steps.append(target.name))
    round_ = asyncio.ensure_future(collect(counted))
    seen = {0}
    while not round_.done():
        await asyncio.sleep(0)
        seen.add(len(steps))
    assert not await round_
    assert max(seen) == 50
    assert all(later - earlier <= 2 for earlier, later in pairwise(sorted(seen)))
