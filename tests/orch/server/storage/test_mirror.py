"""The copy in memory."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from orch.server.storage import mirror
from orch.server.storage.base import Stored


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
