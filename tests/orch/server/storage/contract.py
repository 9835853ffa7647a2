"""The contract of every storage; each implementation's test file runs it as its own.

A subclass gives `make`, which returns a new, unopened storage on the same medium each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from orch.server.storage import base, mirror, watches
from tests.garbage import is_left_by

Make = Callable[[], base.Storage]
MINE = base.Concern("owner", "mine", lambda stored: stored.data.decode())
BIG = base.Concern("first", "B", lambda stored: stored.data[:1].decode())
SIZES = (10, 200_000, 10, 50_000, 40_000, 30_000, 200_000, 200_000, 1)


class StorageContract:
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

    async def test_a_watch_gets_what_came_after_its_revision_in_order(self, storage) -> None:
        first = await storage.create("/pods/a/x", b"1")
        watch = storage.watch("/pods/a/", first.revision)
        second = await storage.update("/pods/a/x", b"2", first.revision)
        await storage.create("/pods/b/x", b"other namespace")
        gone = await storage.delete("/pods/a/x")
        changes = []
        while len(changes) < 2:
            changes += await watch.changes()
        assert [(c.previous, c.current, c.revision) for c in changes] == [
            (first, second, second.revision),
            (second, None, gone.revision),
        ]

    async def test_a_watch_waits_for_the_next_change(self, storage) -> None:
        watch = storage.watch("/pods/", storage.revision)
        waiting = asyncio.ensure_future(watch.changes())
        await storage.create("/nodes/n", b"another kind")
        assert not waiting.done()
        stored = await storage.create("/pods/a/x", b"1")
        assert [change.current for change in await waiting] == [stored]
        assert watch.revision == storage.revision

    @pytest.mark.parametrize("concern", [None, MINE])
    async def test_a_watch_tells_once_that_there_is_something_to_take(
        self, storage, concern
    ) -> None:
        watch = storage.watch("/pods/", storage.revision, concern)
        assert watch.take() == []
        told = []
        watch.wake(lambda: told.append(storage.revision))
        stored = [await storage.create(f"/pods/a/{name}", b"mine") for name in ("x", "y")]
        assert len(told) == 1
        taken = watch.take()
        while len(taken) < 2:  # where other servers write too, memory may be a moment behind
            await asyncio.sleep(0)
            taken += watch.take()
        assert [change.current for change in taken] == stored
        assert watch.take() == []

    @pytest.mark.parametrize("concern", [None, MINE])
    async def test_a_watch_tells_nobody_who_does_not_want_to_know(self, storage, concern) -> None:
        watch = storage.watch("/pods/", storage.revision, concern)
        told = []
        watch.wake(lambda: told.append(1))
        watch.wake(None)
        await storage.create("/pods/a/x", b"mine")
        assert told == []

    @pytest.mark.parametrize("concern", [None, MINE])
    async def test_a_watch_tells_of_its_end(self, storage, concern) -> None:
        watch = storage.watch("/pods/", storage.revision, concern)
        told = []
        watch.wake(lambda: told.append(1))
        storage.end_watches()
        assert told == [1]
        assert watch.take() is None

    async def test_a_closed_watch_ends(self, storage) -> None:
        watch = storage.watch("/pods/", storage.revision)
        waiting = asyncio.ensure_future(watch.changes())
        await asyncio.sleep(0)
        watch.close()
        assert await waiting is None

    async def test_an_idle_watch_knows_the_newest_revision(self, storage) -> None:
        watch = storage.watch("/pods/", storage.revision)
        await storage.create("/nodes/n", b"another kind")
        assert watch.revision == storage.revision

    async def test_a_concerned_watch_is_told_what_enters_stays_and_leaves(self, storage) -> None:
        await storage.create("/pods/a/before", b"mine")
        start = storage.revision
        await storage.create("/pods/a/backlog", b"mine")
        await storage.create("/pods/a/other", b"other")
        watch = storage.watch("/pods/a/", start, MINE)
        moving = await storage.create("/pods/a/moving", b"other")
        moving = await storage.update(moving.key, b"mine", moving.revision)
        moving = await storage.update(moving.key, b"mine", moving.revision)
        moving = await storage.update(moving.key, b"other", moving.revision)
        await storage.update(moving.key, b"other", moving.revision)
        await storage.create("/pods/b/x", b"mine")
        await storage.delete("/pods/a/before")
        seen = []
        while len(seen) < 5:
            seen += [(c.key[8:], c.current and c.current.data) for c in await watch.changes()]
        assert seen == [
            ("backlog", b"mine"),
            ("moving", b"mine"),
            ("moving", b"mine"),
            ("moving", b"other"),
            ("before", None),
        ]
        assert watch.revision == storage.revision

    async def test_a_concerned_watch_waits_and_ends(self, storage) -> None:
        watch = storage.watch("/pods/", storage.revision, MINE)
        waiting = asyncio.ensure_future(watch.changes())
        await storage.create("/pods/a/other", b"other")
        assert not waiting.done()
        storage.end_watches()
        assert await waiting is None
        assert await storage.watch("/pods/", storage.revision, MINE).changes() is None

    async def test_a_concerned_watch_that_is_not_read_falls_behind(self, storage) -> None:
        watch = storage.watch("/pods/", storage.revision, MINE)
        stored = await storage.create("/pods/a/x", b"mine")
        for _ in range(1500):
            stored = await storage.update(stored.key, b"mine", stored.revision)
        with pytest.raises(base.Compacted):
            await watch.changes()

    async def test_a_closed_concerned_watch_is_told_nothing_more(self, storage) -> None:
        one, other = (storage.watch("/pods/", storage.revision, MINE) for _ in range(2))
        one.close()
        await storage.create("/pods/a/x", b"mine")
        assert await one.changes() is None
        assert len(await other.changes()) == 1

    async def test_a_watch_from_forgotten_changes_is_told_so(self, storage) -> None:
        start = (await storage.create("/pods/a/x", b"1")).revision
        behind = storage.watch("/pods/", start)
        for n in range(5):
            await storage.create(f"/pods/a/{n}", b"1")
        storage.compact(2)
        with pytest.raises(base.Compacted) as caught:
            storage.watch("/pods/", start)
        with pytest.raises(base.Compacted):
            await behind.changes()
        storage.watch("/pods/", caught.value.oldest)
        storage.watch("/nodes/", start)

    async def test_history_is_bounded_without_asking(self, storage) -> None:
        stored = await storage.create("/pods/a/x", b"1")
        start = stored.revision
        for _ in range(2000):
            stored = await storage.update("/pods/a/x", b"1", stored.revision)
        with pytest.raises(base.Compacted):
            storage.watch("/pods/", start)

    async def test_ended_watches_deliver_none(self, storage) -> None:
        waiting = asyncio.ensure_future(storage.watch("/pods/", storage.revision).changes())
        await asyncio.sleep(0)
        storage.end_watches()
        assert await waiting is None
        assert await storage.watch("/nodes/", storage.revision).changes() is None

    @pytest.mark.parametrize("concern", [None, MINE])
    async def test_the_watches_of_one_kind_end_and_new_ones_begin_there(
        self, storage, concern
    ) -> None:
        before = storage.revision
        kept = await storage.create("/pods/a/x", b"1")
        ended = storage.watch("/pods/", kept.revision, concern)
        other = storage.watch("/nodes/", kept.revision)
        storage.end_watches("/pods/")
        assert await ended.changes() is None
        assert other.take() == []
        with pytest.raises(base.Compacted):
            storage.watch("/pods/", before)
        again = storage.watch("/pods/", storage.revision)
        made = await storage.create("/pods/a/y", b"2")
        assert [change.current for change in again.take() or ()] == [made]
        assert storage.list("/pods/").items == [kept, made]

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

    @pytest.mark.parametrize("concern", [None, BIG])
    async def test_history_is_bounded_in_bytes_and_who_is_behind_it_is_told(
        self, storage, concern
    ) -> None:
        small = await storage.create("/nodes/n", b"1")
        first = await storage.create("/pods/a/x", b"B" * 100_000)
        behind = storage.watch("/pods/", storage.revision, concern)
        for _ in range(5):
            first = await storage.update("/pods/a/x", b"B" * 100_000, first.revision)
        assert len(storage.list("/pods/", first.revision - 4).items) == 1
        while storage.revision < first.revision:
            await asyncio.sleep(0)
        storage.shrink_history(300_000)
        with pytest.raises(base.Compacted):
            storage.list("/pods/", first.revision - 4)
        with pytest.raises(base.Compacted):
            behind.take()
        storage.watch("/pods/", first.revision - 1)
        storage.watch("/nodes/", small.revision)  # a kind with little keeps what it has

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

    @pytest.mark.parametrize("concern", [None, BIG])
    async def test_a_reader_gets_so_many_bytes_at_once_and_in_the_end_all(
        self, storage, concern
    ) -> None:
        watch = storage.watch("/pods/", storage.revision, concern)
        stored = [await storage.create(f"/pods/a/{n}", b"B" * size) for n, size in enumerate(SIZES)]
        pieces = []
        while sum(map(len, pieces)) < len(SIZES):
            pieces.append([change.current for change in watch.take()])
            await asyncio.sleep(0)
        assert [one for piece in pieces for one in piece] == stored
        for piece in pieces:
            assert len(piece) <= 1 or sum(len(one.data) for one in piece) <= watches.TAKEN_BYTES
        assert watch.take() == []
