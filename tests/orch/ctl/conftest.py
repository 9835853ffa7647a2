"""Running `orchctl` as an operator does: words in, exit code and two texts out."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from orch.ctl import main
from tests.fakes.http_api import HttpApi, http_api


@dataclass(frozen=True, slots=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Orchctl = Callable[..., Awaitable[Result]]


def run_command(*words: str) -> Result:
    """Run one command in this thread."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main.main(words)
        except SystemExit as exit_:
            code = int(exit_.code or 0)
    return Result(code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    """What was written, also past the text layer."""
    stream.flush()
    stream.seek(0)
    return stream.read()


@pytest.fixture(autouse=True)
def no_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads the operator's own configuration."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def in_tokyo() -> Iterator[None]:
    """The local zone is nine hours ahead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


@pytest_asyncio.fixture
async def api() -> AsyncIterator[HttpApi]:
    async with http_api() as running:
        yield running


@pytest.fixture
def orchctl(api: HttpApi) -> Orchctl:
    """A function that runs a command against the fake server, beside the test's own loop."""

    async def run(*words: str) -> Result:
        return await asyncio.to_thread(run_command, "--server", api.url, *words)

    return run
