"""Whatever a test leaves under way, as an agent that is killed does, ends with the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.archives import store
from nodeagent.archives.streaming import Follower


@pytest.fixture(autouse=True)
def no_followers_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop the threads that read behind a writer, before a later test meets them."""
    made: list[Follower] = []

    class Recorded(Follower):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)

    monkeypatch.setattr(store, "Follower", Recorded)
    yield
    for follower in made:
        follower.stop()
