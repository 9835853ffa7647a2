"""The contract of every storage; each implementation's test file runs it as its own.

A subclass gives `make`, which returns a new, unopened storage on the same medium each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from orch.server.storage import base, mirror
from tests.garbage import is_left_by
from tests.orch.server.storage.watch_contract import WatchContract

Make = Callable[[], base.Storage]


class StorageContract(WatchContract):
    @pytest.fixture
    async def storage(self, make: Make) -> AsyncIterator[base.Storage]:
        storage = make()
        await storage.open()
        yield storage
        await storage.close()

    async def test_a_created_object_is_read_back_at_its_revision(self, storage) -> None:
        stored = await storage.create("/pods/a/x", b"1")
        assert storage.get("/pods/a/x") == stored
        assert stored.data == b"1"
        assert stored.revision == storage.revision

    async def test_creating_a_taken_key_is_refused_and_changes_nothing(self, storage) -> None:
        first = await storage.create("/pods/a/x", b"1")
        with pytest.raises(base.KeyExists):
            await storage.create("/pods/a/x", b"2")
        assert storage.get("/pods/a/x") == first
        assert storage.revision == first.revision

    async def test_a_refused_write_leaves_no_garbage(self, storage) -> None:
        await storage.create("/pods/a/x", b"1")
        assert not await is_left_by(lambda: storage.create("/pods/a/x", b"2"))
        assert not await is_left_by(lambda: storage.update("/pods/a/x", b"2", 7))

    async def test_an_update_needs_the_revision_it_was_made_from(self, storage) -> None:
        first = await storage.create("/pods/a/x", b"1")
        second = await storage.update("/pods/a/x", b"2", first.revision)
        with pytest.raises(base.RevisionMismatch) as caught:
            await storage.update("/pods/a/x", b"3", first.revision)
        assert caught.value.current == second.revision
        assert storage.get("/pods/a/x").data == b"2"

    async def test_what_does_not_exist_is_neither_updated_nor_deleted(self, storage) -> None:
        with pytest.raises(base.KeyMissing):
            await storage.update("/pods/a/x", b"1", 1)
        with pytest.raises(base.KeyMissing):
            await storage.delete("/pods/a/x")

    async def test_a_deletion_gives_the_last_data_and_a_revision_of_its_own(self, storage) -> None:
        first = await storage.create("/pods/a/x", b"1")
        with pytest.raises(base.RevisionMismatch):
            await storage.delete("/pods/a/x", first.revision + 7)
        gone = await storage.delete("/pods/a/x", first.revision)
        assert (gone.data, gone.revision) == (b"1", first.revision + 1)
        assert storage.get("/pods/a/x") is None

    async def test_writes_that_belong_together_are_all_made_or_none(self, storage) -> None:
        first = await storage.create("/quotas/a/q", b"1")
        also = [base.Write(first.key, b"2", first.revision)]
        made = await storage.create("/pods/a/x", b"1", also)
        second = storage.get("/quotas/a/q")
        assert (storage.get("/pods/a/x"), second.data) == (made, b"2")
        watch = storage.watch("/quotas/", first.revision)
        assert [change.current for change in await watch.changes()] == [second]
        with pytest.raises(base.RevisionMismatch):
            await storage.create("/pods/a/y", b"1", also)
        with pytest.raises(base.RevisionMismatch):
            await storage.update("/pods/a/x", b"3", made.revision, also)
        with pytest.raises(base.KeyExists):
            await storage.create("/pods/a/x", b"3", [base.Write(first.key, b"3", second.revision)])
        await storage.delete("/quotas/a/q")
        gone = [base.Write(first.key, b"3", second.revision)]
        with pytest.raises(base.RevisionMismatch):
            await storage.update("/pods/a/x", b"3", made.revision, gone)
        assert storage.get("/pods/a/x") == made
        assert storage.get("/pods/a/y") is None

    async def test_the_tally_agrees_with_what_is_stored(self, storage, make) -> None:
        for key in ("/pods/a/x", "/pods/a/y", "/pods/b/x", "/nodes/n"):
            await storage.create(key, b"12")
        await storage.update("/pods/a/x", b"12345", storage.get("/pods/a/x").revision)
        await storage.delete("/pods/a/y")
        pods = storage.tally.scope("a").of("pods")
        assert (pods.objects, pods.bytes) == (1, len("/pods/a/x") + 5)
        assert storage.tally.scope("/nodes").all.objects == 1
        assert (storage.tally.all.objects, storage.tally.all.bytes) == (3, 26 + 9)
        await storage.delete("/pods/b/x")
        assert storage.tally.scope("b").all.bytes == 0

    async def test_of_many_writers_with_one_revision_exactly_one_wins(self, storage) -> None:
        first = await storage.create("/pods/a/x", b"0")
        attempts = [storage.update("/pods/a/x", b"%d" % n, first.revision) for n in range(50)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        winners = [r for r in results if isinstance(r, base.Stored)]
        assert len(winners) == 1
        assert storage.get("/pods/a/x") == winners[0]
        losers = [r for r in results if isinstance(r, base.RevisionMismatch)]
        assert {r.current for r in losers} == {winners[0].revision}

    async def test_a_list_has_the_prefix_in_key_order_and_its_revision(self, storage) -> None:
        for key in ("/pods/b/x", "/pods/a/y", "/pods/a/x", "/pods.other/a/x", "/pods/ab/x"):
            await storage.create(key, b"1")
        snapshot = storage.list("/pods/a/")
        assert [item.key for item in snapshot.items] == ["/pods/a/x", "/pods/a/y"]
        assert snapshot.revision == storage.revision
        assert len(storage.list("/pods/").items) == 4
        await storage.delete("/pods/a/x")
        assert [item.key for item in storage.list("/pods/a/").items] == ["/pods/a/y"]

    async def test_a_list_of_the_past_undoes_what_happened_since(self, storage) -> None:
        first = await storage.create("/pods/a/x", b"1")
        gone = await storage.create("/pods/a/y", b"1")
        then = storage.revision
        await storage.update("/pods/a/x", b"2", first.revision)
        await storage.delete("/pods/a/y")
        await storage.create("/pods/a/z", b"1")
        snapshot = storage.list("/pods/a/", then)
        assert (snapshot.items, snapshot.revision) == ([first, gone], then)
        storage.compact(1)
        with pytest.raises(base.Compacted):
            storage.list("/pods/a/", then)

    async def test_revisions_grow_over_all_kinds(self, storage) -> None:
        revisions = [
            (await storage.create("/pods/a/x", b"1")).revision,
            (await storage.create("/nodes/n", b"1")).revision,
            (await storage.delete("/pods/a/x")).revision,
        ]
        assert revisions == sorted(set(revisions))

    async def test_a_list_stays_in_key_order_whatever_comes_and_goes(self, storage) -> None:
        for name in ("m", "x", "b"):
            await storage.create(f"/pods/ns/{name}", b"{}")
        assert [stored.key[-1] for stored in storage.list("/pods/").items] == ["b", "m", "x"]
        before = storage.revision
        await storage.delete("/pods/ns/m")
        await storage.create("/pods/ns/a", b"{}")
        await storage.create("/pods/ns/m", b"[]")
        assert [stored.key[-1] for stored in storage.list("/pods/").items] == ["a", "b", "m", "x"]
        past = storage.list("/pods/", before).items
        assert [(stored.key[-1], stored.data) for stored in past] == [
            ("b", b"{}"), ("m", b"{}"), ("x", b"{}"),
        ]  # fmt: skip

    async def test_a_cancelled_caller_does_not_stop_the_others(self, storage) -> None:
        cancelled = asyncio.ensure_future(storage.create("/pods/a/x", b"1"))
        await asyncio.sleep(0)
        cancelled.cancel()
        await storage.create("/pods/a/y", b"1")
        async with asyncio.timeout(10):  # the two may be written side by side, in either order
            while storage.get("/pods/a/x") is None:
                await asyncio.sleep(0.01)

    async def test_check_passes_while_writes_work_and_size_is_known(self, storage) -> None:
        before = storage.revision
        await storage.check()
        assert storage.revision == before
        assert await asyncio.to_thread(storage.size_bytes) >= 0

    async def test_a_closed_storage_refuses_writes(self, make: Make) -> None:
        storage = make()
        await storage.open()
        await storage.close()
        with pytest.raises(base.StorageFailed):
            await storage.create("/pods/a/x", b"1")
        with pytest.raises(base.StorageFailed):
            await storage.check()

    async def test_objects_and_revision_outlive_a_restart(self, make: Make) -> None:
        storage = make()
        await storage.open()
        kept = await storage.create("/pods/a/x", b"1")
        await storage.create("/pods/a/y", b"1")
        gone = await storage.delete("/pods/a/y")
        await storage.close()

        again = make()
        await again.open()
        assert again.revision == gone.revision
        assert again.list("/pods/").items == [kept]
        assert (await again.create("/pods/a/z", b"1")).revision > gone.revision
        with pytest.raises(base.Compacted):
            again.watch("/pods/", kept.revision)
        again.watch("/pods/", gone.revision)
        await again.close()

    async def test_keys_stay_in_order_whether_few_or_many_come_and_go(self, storage) -> None:
        there: set[str] = set()
        for number, count in enumerate((1, 3, 100, 2, 70, 1)):
            for key in (f"/pods/a/{(number * 37 + n * 11) % 150}" for n in range(count)):
                write = storage.delete(key) if key in there else storage.create(key, b"1")
                stored = await write
                there ^= {key}
            while storage.revision < stored.revision:
                await asyncio.sleep(0)
            assert [one.key for one in storage.list("/pods/").items] == sorted(there)

    async def test_a_reader_of_old_states_is_told_when_too_much_was_replaced(
        self, storage, monkeypatch
    ) -> None:
        monkeypatch.setattr(mirror, "MAX_BEHIND_BYTES", 250_000)
        told: list[str] = []
        storage.hold("/pods/a/", lambda: told.append("slow"))
        storage.hold("/pods/a/", lambda: told.append("done"))()
        storage.hold("/pods/b/", lambda: told.append("of another namespace"))
        storage.hold("/pods/a/y", lambda: told.append("of another object"))
        storage.hold("/nodes/", lambda: told.append("of another kind"))
        stored = await storage.create("/pods/a/x", b"1" * 100_000)
        for count in range(3):
            assert told == []
            if count == 1:
                storage.hold("/pods/a/", lambda: told.append("later"))
            stored = await storage.update("/pods/a/x", b"1" * 100_000, stored.revision)
        while storage.revision < stored.revision:
            await asyncio.sleep(0)
        assert told == ["slow"]

    async def test_of_readers_of_several_places_goes_who_keeps_most(
        self, storage, monkeypatch
    ) -> None:
        monkeypatch.setattr(mirror, "MAX_BEHIND_BYTES", 350_000)
        told: list[str] = []
        for place in ("/pods/a/", "/pods/b/x", "/pods/a/"):
            storage.hold(place, partial(told.append, place))
        for namespace, times in (("b", 1), ("a", 3)):
            key, data = f"/pods/{namespace}/x", b"1" * 100_000
            stored = await storage.create(key, data)
            for _ in range(times):
                stored = await storage.update(key, data, stored.revision)
        while storage.revision < stored.revision:
            await asyncio.sleep(0)
        assert told == ["/pods/a/"] * 2
