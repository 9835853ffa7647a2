"""Files that change all at once, in a real directory."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodeagent.pods.spec.volume_files import VolumeFile
from nodeagent.pods.volumes import directories
from tests.examples import examples


def file(path: str, content: str = "x", mode: int = 0o644) -> VolumeFile:
    return VolumeFile(path, content.encode(), mode)


def shown(directory: Path) -> dict[str, str]:
    """What a reader sees: paths that do not begin with `..`."""
    found = {}
    for parent, _, names in os.walk(directory, followlinks=True):
        for name in names:
            path = str(Path(parent, name).relative_to(directory))
            if not path.startswith(".."):
                found[path] = Path(parent, name).read_text()
    return found


def test_files_are_read_through_one_link_that_is_replaced_at_once(tmp_path: Path) -> None:
    assert directories.write(tmp_path, [file("a", "1"), file("sub/b", "2", 0o600)])
    assert shown(tmp_path) == {"a": "1", "sub/b": "2"}
    assert os.readlink(tmp_path / "a") == "..data/a"
    assert (tmp_path / "sub/b").stat().st_mode & 0o777 == 0o600
    first = os.readlink(tmp_path / "..data")
    assert not directories.write(tmp_path, [file("a", "1"), file("sub/b", "2", 0o600)])
    assert os.readlink(tmp_path / "..data") == first, "the same is not written again"
    assert directories.write(tmp_path, [file("a", "new")])
    assert shown(tmp_path) == {"a": "new"}
    assert sorted(os.listdir(tmp_path)) == sorted(["..data", os.readlink(tmp_path / "..data"), "a"])


def test_files_that_cannot_be_written_leave_the_old_set_and_nothing_beside_it(
    tmp_path: Path,
) -> None:
    directories.write(tmp_path, [file("a", "old")])
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(OSError, match="File name too long"):
        directories.write(tmp_path, [file("a", "new"), file("x" * 300)])
    with pytest.raises(ValueError, match="null byte"):
        directories.write(tmp_path, [file("a", "new"), file("x\0y")])
    assert sorted(os.listdir(tmp_path)) == before
    assert shown(tmp_path) == {"a": "old"}


def test_files_that_cannot_be_put_in_place_do_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories.write(tmp_path, [file("a", "old")])
    before = sorted(os.listdir(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(OSError, match="No space left"):
        directories.write(tmp_path, [file("a", "new")])
    assert sorted(os.listdir(tmp_path)) == before
    assert shown(tmp_path) == {"a": "old"}


def test_files_that_cannot_be_linked_to_leave_one_set_however_often_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try left all files of a volume behind."""
    link = Path.symlink_to

    def refuse(path: Path, target: str) -> None:
        if target == "..data/b":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        link(path, target)

    monkeypatch.setattr(Path, "symlink_to", refuse)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            directories.write(tmp_path, [file("a"), file("b")])
    assert set(os.listdir(tmp_path)) - {"a"} == {"..data", os.readlink(tmp_path / "..data")}
    monkeypatch.undo()
    assert directories.write(tmp_path, [file("a"), file("b")])
    assert shown(tmp_path) == {"a": "x", "b": "x"}


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    files = [file("é" * 127), file("a" * 255), file("a" * 254 + "b")]
    assert directories.write(tmp_path, files)
    assert shown(tmp_path) == {one.path: "x" for one in files}


def test_a_mode_that_changed_is_a_change(tmp_path: Path) -> None:
    directories.write(tmp_path, [file("a")])
    assert directories.write(tmp_path, [file("a", mode=0o400)])
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o400


def test_planted_links_and_files_are_replaced_and_never_written_through(tmp_path: Path) -> None:
    target = tmp_path / "host-file"
    target.write_text("precious")
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "labels").symlink_to(target)
    (volume / "plain").write_text("of an older agent")
    (volume / "..data_new").symlink_to(target)
    directories.write(volume, [file("labels", "a=b"), file("plain", "new")])
    assert target.read_text() == "precious"
    assert shown(volume) == {"labels": "a=b", "plain": "new"}


STEPS = ["mkdtemp", "symlink_to", "replace", "unlink", "rmtree"]


@pytest.mark.parametrize("stop_at", range(12))
def test_broken_off_anywhere_the_old_files_or_the_new_ones_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    old, new = [file("a", "1"), file("b", "1")], [file("a", "2"), file("c", "2")]
    directories.write(tmp_path, old)
    left = stop_at

    def counted(real: object) -> object:
        def step(*arguments: object, **named: object) -> object:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            return real(*arguments, **named)  # type: ignore[operator]

        return step

    with monkeypatch.context() as patched:
        for name in ("symlink_to", "replace", "unlink"):
            patched.setattr(Path, name, counted(getattr(Path, name)))
        patched.setattr(os, "open", counted(os.open))
        try:
            directories.write(tmp_path, new)
        except KeyboardInterrupt:
            in_force = {
                (tmp_path / name).read_text() for name in "ab" if (tmp_path / name).exists()
            }
            assert len(in_force) == 1, "never some of the old and some of the new"
    directories.write(tmp_path, new)
    assert shown(tmp_path) == {"a": "2", "c": "2"}
    assert len([name for name in os.listdir(tmp_path) if name.startswith("..")]) == 2


NAMES = st.text("abc", min_size=1, max_size=2)
SETS = st.dictionaries(NAMES, st.text("xyz", max_size=3), max_size=4)


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(SETS, min_size=1, max_size=4))
def test_whatever_came_before_readers_see_exactly_the_last_set(
    tmp_path_factory: pytest.TempPathFactory, sets: list[dict[str, str]]
) -> None:
    directory = tmp_path_factory.mktemp("volume")
    for wanted in sets:
        directories.write(directory, [file(name, text) for name, text in wanted.items()])
    assert shown(directory) == sets[-1]
