"""The contract of every storage's watches; part of `contract.py`."""

from __future__ import annotations

import asyncio

import pytest

from orch.server.storage import base, watches

MINE = base.Concern("owner", "mine", lambda stored: stored.data.decode())
BIG = base.Concern("first", "B", lambda stored: stored.data[:1].decode())
SIZES = (10, 200_000, 10, 50_000, 40_000, 30_000, 200_000, 200_000, 1)


class WatchContract:
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

    @pytest.mark.parametrize("concern", [None, MINE])
    async def test_a_watch_ends_with_its_namespace(self, storage, concern) -> None:
        """After the last changes there. Its reader may have no rights in the next of the name."""
        await storage.create("/namespaces/a", b"{}")
        begun = storage.revision
        first = await storage.create("/pods/a/x", b"mine")
        late, here, everywhere, elsewhere = (
            storage.watch(prefix, revision, concern)
            for prefix, revision in (
                ("/pods/a/", begun),
                ("/pods/a/", storage.revision),
                ("/pods/", storage.revision),
                ("/pods/ab/", storage.revision),
            )
        )
        gone = await storage.delete("/pods/a/x")
        await storage.delete("/namespaces/a")
        await storage.create("/namespaces/a", b"{}")
        await storage.create("/pods/a/x", b"mine")
        for watch, revisions in ((here, [gone.revision]), (late, [first.revision, gone.revision])):
            async with asyncio.timeout(10):
                while (found := await watch.changes()) is not None:
                    assert [change.revision for change in found] == revisions[: len(found)]
                    del revisions[: len(found)]
            assert not revisions
        assert [change.key for change in await everywhere.changes()] == ["/pods/a/x"] * 2
        assert elsewhere.take() == []

    @pytest.mark.parametrize("concern", [None, MINE])
    async def test_who_waits_is_told_that_a_namespace_has_ended(self, storage, concern) -> None:
        await storage.create("/namespaces/a", b"{}")
        watch = storage.watch("/pods/a/", storage.revision, concern)
        waiting = asyncio.ensure_future(watch.changes())
        await asyncio.sleep(0)
        await storage.delete("/namespaces/a")
        async with asyncio.timeout(10):
            assert await waiting is None

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
