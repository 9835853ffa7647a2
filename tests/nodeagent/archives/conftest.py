"""Checkpoints that a test leaves in progress, as a killed agent does, end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodeagent.archives import store
from nodeagent.archives.streaming import ArchiveTail


@pytest.fixture(autouse=True)
def tails(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ArchiveTail]]:
    """The tails that stores start, cancelled at the end of the test."""
    started: list[ArchiveTail] = []

    class Recorded(ArchiveTail):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            started.append(self)

    monkeypatch.setattr(store, "ArchiveTail", Recorded)
    yield started
    for tail in started:
        tail.cancel()
