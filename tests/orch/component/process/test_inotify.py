"""inotify on real files."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from orch.component.process.inotify import PathWatch


class Watched:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.changed = asyncio.Event()
        self.watch = PathWatch(self.changed.set)
        self.look()

    def look(self) -> None:
        self.watch.watch(str(self.path))

    async def told(self, within_s: float = 5.0) -> bool:
        """Whether something was told, and nothing is left to be told."""
        try:
            async with asyncio.timeout(within_s):
                await self.changed.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(0.01)
        self.changed.clear()
        return True


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    directory = tmp_path / "d"
    directory.mkdir()
    (directory / "old").write_text("1")
    (tmp_path / "other").write_text("2")
    watched = Watched(directory)
    yield watched
    watched.watch.close()


CHANGES: list[tuple[str, Callable[[Path], object]]] = [
    ("a new file", lambda d: (d / "new").touch()),
    ("a file written anew", lambda d: (d / "old").write_text("2")),
    ("a file written in place", lambda d: os.truncate(d / "old", 0)),
    ("a file replaced", lambda d: (d.parent / "other").rename(d / "old")),
    ("a file moved away", lambda d: (d / "old").rename(d.parent / "elsewhere")),
    ("a file removed", lambda d: (d / "old").unlink()),
    ("a file made readable", lambda d: (d / "old").chmod(0o600)),
    ("a link", lambda d: (d / "link").symlink_to("old")),
    ("the directory itself removed", shutil.rmtree),
    ("the directory itself moved", lambda d: d.rename(d.parent / "e")),
]  # fmt: skip


@pytest.mark.parametrize("change", [c for _, c in CHANGES], ids=[name for name, _ in CHANGES])
async def test_a_change_is_reported(watched: Watched, change: Callable[[Path], object]) -> None:
    change(watched.path)
    assert await watched.told()


async def test_names_that_went_are_told_once_even_if_they_are_back(watched: Watched) -> None:
    for name in ("a", "b" * 255, "c"):
        (watched.path / name).touch()
    (watched.path / "a").unlink()
    (watched.path / "a").touch()
    (watched.path / ("b" * 255)).rename(watched.path.parent / "elsewhere")
    (watched.path.parent / "other").rename(watched.path / "c")
    assert await watched.told()
    assert watched.watch.take_removed() == {"a", "b" * 255}
    assert watched.watch.take_removed() == frozenset()


async def test_reading_is_no_change(watched: Watched) -> None:
    (watched.path / "old").read_text()
    list(watched.path.iterdir())
    assert not await watched.told(0.05)


async def test_a_directory_made_anew_is_watched_after_another_look(watched: Watched) -> None:
    watched.path.rename(watched.path.parent / "former")
    assert await watched.told()
    with pytest.raises(FileNotFoundError, match="d"):
        watched.look()
    watched.path.mkdir()
    watched.look()
    await watched.told(0.05)  # that the former one is not watched any more
    (watched.path / "new").touch()
    assert await watched.told()
    (watched.path.parent / "former" / "x").touch()
    assert not await watched.told(0.05)


async def test_looking_again_at_the_same_place_changes_nothing(watched: Watched) -> None:
    watched.look()
    assert not await watched.told(0.05)
    (watched.path / "new").touch()
    assert await watched.told()


async def test_a_single_file_is_watched(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("1")
    watched = Watched(path)
    path.write_text("2")
    assert await watched.told()
    watched.watch.close()
