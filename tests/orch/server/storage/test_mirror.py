"""The copy in memory."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from orch.server.storage import mirror
from orch.server.storage.base import Change, Stored
from orch.server.storage.mirror import MirroredStorage


def test_what_is_below_a_prefix_is_in_order_and_stays_as_it_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After any history of changes, in parts of few objects."""
    monkeypatch.setattr(mirror, "_PART", 4)
    for seed in range(50):
        chance = random.Random(seed)
        ordered, known = mirror._Ordered(), dict[str, Stored]()
        read: list[tuple[Sequence[Stored], list[Stored]]] = []
        for revision in range(1, 300):
            key = f"/{chance.choice('abc')}/{chance.choice('xyz')}{chance.randrange(40)}"
            what = chance.random()
            if what < 0.5:
                known[key] = Stored(key, revision, b"{}")
                ordered.put(known[key])
            elif what < 0.75:
                if known.pop(key, None):
                    ordered.drop(key)
            else:
                prefix = chance.choice(["/", "/a/", "/b/", "/c/x", "/d/"])
                below = [known[key] for key in sorted(known) if key.startswith(prefix)]
                read.append((ordered.below(prefix), below))
        for found, wanted in read:
            start, stop = chance.randrange(-50, 60), chance.randrange(-50, 60)
            assert [*found] == wanted
            assert len(found) == len(wanted)
            assert [*found[start:stop]] == wanted[start:stop]
            assert [*found[start:stop:-2]] == wanted[start:stop:-2]
            if wanted:
                assert (found[0], found[-1]) == (wanted[0], wanted[-1])


def test_a_watch_sees_nothing_of_the_next_namespace_also_when_both_come_at_once() -> None:
    """As they do from etcd."""
    storage = MirroredStorage()
    storage.load([Stored("/namespaces/a", 1, b""), Stored("/pods/a/x", 2, b"")], 2)
    watch = storage.watch("/pods/a/", 2)
    told = [
        ("/pods/a/x", None),
        ("/namespaces/a", None),
        ("/namespaces/a", b""),
        ("/pods/a/x", b"another's"),
    ]
    changes: list[Change] = []
    for revision, (key, data) in enumerate(told, 3):
        current = None if data is None else Stored(key, revision, data)
        changes.append(Change(key, revision, current, None if current else storage.get(key)))
    storage.apply(changes)
    assert watch.take() == changes[:1]
    assert watch.take() is None
    assert [stored.data for stored in storage.list("/pods/a/").items] == [b"another's"]
