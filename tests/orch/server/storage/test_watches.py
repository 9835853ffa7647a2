from __future__ import annotations

import pytest

from orch.server.storage.base import Change, Compacted
from orch.server.storage.watches import History


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
