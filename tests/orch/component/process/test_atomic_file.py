"""Files that are replaced in one step, and what is never replaced."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from orch.component.process.atomic_file import is_unfinished, replace_file


def _link(path: Path) -> None:
    path.symlink_to(path.with_name("target"))
    path.with_name("target").write_text("other")


def _dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device needs root")


OTHERS: dict[str, Callable[[Path], None]] = {
    "a link": _link,
    "a dangling link": _dangling_link,
    "a directory": Path.mkdir,
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "a device": _device,
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_regular_file_is_left_alone(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    OTHERS[kind](path)
    before = path.lstat(), sorted(os.listdir(tmp_path))
    with pytest.raises(FileExistsError, match="not a regular file") as refused:
        replace_file(path, b"new")
    assert refused.value.filename == str(path)
    assert (path.lstat(), sorted(os.listdir(tmp_path))) == before
    if kind == "a link":
        assert (tmp_path / "target").read_text() == "other"


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_is_made_and_replaced(tmp_path: Path, *, durable: bool) -> None:
    path = tmp_path / "file"
    for content in (b"first", b"", b"x" * 1_000_000):
        replace_file(path, content, durable=durable)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["file"]


def test_a_reader_keeps_the_content_it_opened(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    os.link(path, tmp_path / "kept")
    with path.open() as reader:
        replace_file(path, b"new")
        assert reader.read() == "old"
    assert (tmp_path / "kept").read_text() == "old"


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_mode_is_the_wanted_one_whatever_the_umask_and_the_old_file(
    tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o666)
    before = os.umask(0o077)
    try:
        replace_file(str(path), b"new", mode=mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_name_in_an_open_directory_is_found_though_the_directory_moved(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    directory = os.open(tmp_path / "before", os.O_RDONLY)
    (tmp_path / "before").rename(tmp_path / "after")
    try:
        replace_file("file", b"new", directory=directory, durable=True)
    finally:
        os.close(directory)
    assert (tmp_path / "after" / "file").read_bytes() == b"new"


@pytest.mark.parametrize("broken", ["write", "replace", "fsync"])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fchmod" if broken == "write" else broken, fail)
    with pytest.raises(OSError, match="No space left") as failed:
        replace_file(path, b"new", durable=True)
    assert failed.value.filename == str(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_directory_that_is_missing_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as failed:
        replace_file(tmp_path / "none" / "file", b"new")
    assert failed.value.filename == str(tmp_path / "none" / "file")


def test_a_bare_name_lies_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    replace_file("file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_a_killed_process_leaves_is_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    replace = os.replace

    def watched(source: str, target: str, **where: int) -> None:
        seen.append(source)
        replace(source, target, **where)

    monkeypatch.setattr(os, "replace", watched)
    for _ in range(2):
        replace_file(tmp_path / "file", b"new")
    assert len(set(seen)) == 2
    assert all(map(is_unfinished, seen))
    assert not any(map(is_unfinished, ("file", ".unfinished", ".file.unfinished", "a" + seen[0])))
