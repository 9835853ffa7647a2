from __future__ import annotations

import pytest

from orch.server.storage.base import Change, Compacted
from orch.server.storage.history import History


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
    assert (len(history), history.floor) == (2, 0)


async def test_every_waiting_reader_is_woken_by_a_change() -> None:
    history = History(floor=0)
    waiting = [history.next_change() for _ in range(3)]
    history.append(changes(1))
    assert all(future.done() for future in waiting)


async def test_a_reader_that_gives_up_waiting_is_forgotten() -> None:
    history = History(floor=0)
    waiting = history.next_change()
    history.forget(waiting)
    history.append(changes(1))
    assert not waiting.done()


async def test_an_ended_history_lets_its_readers_go() -> None:
    history = History(floor=0)
    waiting = history.next_change()
    history.end()
    assert history.ended
    assert waiting.done()
