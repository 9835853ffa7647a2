from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from orch.ctl import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def _run(stream: Any, monkeypatch: pytest.MonkeyPatch, took_s: float) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    async with progress.shown("copying\x1b") as watch:
        await asyncio.sleep(took_s)
    watch.finish("3 files")
    return str(stream.getvalue())


async def test_a_terminal_sees_the_seconds_and_then_the_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = await _run(Terminal(), monkeypatch, 0.05)
    counting, _, last = text.rpartition("\r\x1b[K")
    assert counting.startswith("\r\x1b[Kcopying\\x1b: 0 s")
    assert last.startswith("copying\\x1b: done, 3 files, 0.")
    assert last.endswith(" s\n")


async def test_a_file_gets_the_outcome_only(monkeypatch: pytest.MonkeyPatch) -> None:
    text = await _run(io.StringIO(), monkeypatch, 0)
    assert text.startswith("copying\\x1b: done, 3 files, ")
    assert text.count("\n") == 1


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
async def test_what_fails_inside_comes_out_as_it_is(
    monkeypatch: pytest.MonkeyPatch, stream: Any
) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    with pytest.raises(ValueError, match="broken"):
        async with progress.shown("copying"):
            raise ValueError("broken")
