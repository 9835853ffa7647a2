from __future__ import annotations

import pytest

from orch.server.storage.base import Change, Compacted, Concern, Stored
from orch.server.storage.watches import (
    LOOKED_AT,
    ConcernedWatch,
    ConcernIndex,
    CursorWatch,
    History,
)


def changes(*revisions: int) -> list[Change]:
    return [Change("/k/x", revision, None, None) for revision in revisions]


def test_a_reader_continues_after_the_revision_it_has_seen() -> None:
    history = History(floor=2)
    history.append(changes(4, 6, 9))
    table = {2: [4, 6, 9], 4: [6, 9], 5: [6, 9], 9: [], 12: []}
    for seen, rest in table.items():
        position = history.position_after(seen)
        assert [c.revision for c in history.read(position, seen)] == rest


def test_what_was_trimmed_cannot_be_continued_from() -> None:
    history = History(floor=0)
    history.append(changes(1, 2, 3, 4))
    position = history.position_after(1)
    history.trim(2)
    assert history.floor == 2
    with pytest.raises(Compacted):
        history.position_after(1)
    with pytest.raises(Compacted):
        history.read(position, 1)
    assert [c.revision for c in history.read(history.position_after(2), 2)] == [3, 4]


def test_trimming_to_more_than_is_held_forgets_nothing() -> None:
    history = History(floor=0)
    history.append(changes(1, 2))
    history.trim(2)
    assert (len(history.read(0, 0)), history.floor) == (2, 0)


class Reader:
    """Counts how often it was told."""

    def __init__(self) -> None:
        self.told = 0

    def tell(self) -> None:
        self.told += 1


def test_every_reader_that_wants_to_know_is_told_of_the_next_change_once() -> None:
    history = History(floor=0)
    readers = [Reader() for _ in range(3)]
    for reader in readers:
        history.add_callback(reader.tell)
    history.append(changes(1))
    history.append(changes(2))
    assert [reader.told for reader in readers] == [1, 1, 1]


def test_a_reader_that_does_not_want_to_know_any_more_is_forgotten() -> None:
    history, reader = History(floor=0), Reader()
    history.add_callback(reader.tell)
    history.remove_callback(reader.tell)
    history.append(changes(1))
    assert reader.told == 0


def test_an_ended_history_lets_its_readers_go() -> None:
    history, reader = History(floor=0), Reader()
    history.add_callback(reader.tell)
    history.end()
    assert history.ended
    assert reader.told == 1


FAR = 3 * LOOKED_AT  # more than a watch looks at in one go


def written(revision: int, name: str = "other") -> Change:
    key = f"/k/b/{name}"
    return Change(key, revision, Stored(key, revision, b"{}"), None)


def named(name: str) -> Concern:
    return Concern("name", name, lambda stored: stored.key.rpartition("/")[2])


def watches(history: History, index: ConcernIndex) -> dict[str, CursorWatch]:
    """Of what none of the first FAR changes is about, from the beginning."""
    return {
        "cursor": CursorWatch(history, "/k/a/", 0, lambda: FAR + 2),
        "concerned": ConcernedWatch(index, named("mine"), history, "/k/", 0, lambda: FAR + 2),
    }


@pytest.mark.parametrize("kind", ["cursor", "concerned"])
def test_a_watch_from_long_ago_looks_at_a_part_at_a_time_and_misses_nothing(kind: str) -> None:
    """All of it at once, for a selector that nothing met, stalled the server."""
    history, index = History(floor=0), ConcernIndex()
    history.append([written(revision) for revision in range(1, FAR + 1)], keep=FAR)
    watch = watches(history, index)[kind]
    for _ in range(FAR // LOOKED_AT - 1):
        assert watch.is_behind
        assert watch.take() == []
    mine = [Change(f"/k/a/{name}", FAR + n, *states) for n, (name, *states) in enumerate(
        [("mine", Stored("/k/a/mine", FAR + 1, b"{}"), None)] * 2, start=1)]  # fmt: skip
    for change in mine:  # one while it is behind, one while it is not
        history.append([change], keep=FAR)
        index.notify([change])
        found = []
        while watch.is_behind or not found:
            found += watch.take()
        assert found == [change]
    assert watch.take() == []
    assert not watch.is_behind
    assert watch.revision == FAR + 2


async def test_who_waits_for_changes_gets_what_comes_long_after_the_beginning() -> None:
    history, index = History(floor=0), ConcernIndex()
    history.append([written(revision) for revision in range(1, FAR + 1)], keep=FAR)
    last = Change("/k/a/mine", FAR + 1, Stored("/k/a/mine", FAR + 1, b"{}"), None)
    history.append([last], keep=FAR)
    for watch in watches(history, index).values():
        assert await watch.changes() == [last]


def test_a_watch_that_is_far_behind_is_told_what_was_forgotten_and_of_the_end() -> None:
    history, index = History(floor=0), ConcernIndex()
    history.append([written(revision) for revision in range(1, FAR + 1)], keep=FAR)
    behind = watches(history, index).values()
    history.trim(10)
    for watch in behind:
        with pytest.raises(Compacted):
            watch.take()
    history.end()
    for watch in behind:
        assert watch.take() is None
