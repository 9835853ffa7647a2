"""Paths reached from descriptor to descriptor, as a pod changes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nodeagent import descriptors


def reached(root: Path, below: str, **more: int) -> str:
    opened = os.open(root, os.O_PATH)
    try:
        found = descriptors.reach(opened, Path(below).parts, **more)
    finally:
        os.close(opened)
    try:
        return os.readlink(f"/proc/self/fd/{found}")
    finally:
        os.close(found)


def test_what_is_there_is_reached_and_what_is_missing_is_made(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o700)
    assert reached(tmp_path, "a") == str(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        reached(tmp_path, "a/b")
    before = os.umask(0o077)
    try:
        assert reached(tmp_path, "a/b/c", new_mode=0o775) == str(tmp_path / "a/b/c")
    finally:
        os.umask(before)
    assert [(tmp_path / p).stat().st_mode & 0o777 for p in ("a", "a/b/c")] == [0o700, 0o775]


@pytest.mark.parametrize("below", ["link", "link/ssl", "link/new"])
def test_no_link_is_followed_or_made_through(tmp_path: Path, below: str) -> None:
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(OSError, match="is a link"):
        reached(tmp_path, below, new_mode=0o755)
    assert not Path("/etc/new").exists()


def test_a_path_with_a_link_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    os.close(descriptors.reach_path(str(tmp_path / "real")))
    with pytest.raises(OSError):
        descriptors.reach_path(str(tmp_path / "link"))


@pytest.mark.parametrize(("levels", "followed"), [(0, True), (1, False)])
def test_the_levels_above_a_directory_may_be_links_or_not(
    tmp_path: Path, levels: int, followed: bool
) -> None:
    (tmp_path / "real/below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    if not followed:
        with (
            pytest.raises(OSError),
            descriptors.directory(tmp_path / "link/below", parent_levels=levels),
        ):
            pass
        return
    with descriptors.directory(tmp_path / "link/below", parent_levels=levels) as opened:
        assert os.fstat(opened).st_ino == (tmp_path / "real/below").stat().st_ino


def test_only_a_regular_file_is_opened_and_only_a_new_one_made(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("pipe", "link", "."):
        with pytest.raises(OSError):
            descriptors.open_file(tmp_path / name)
    made = descriptors.create_file(tmp_path / "file", 0o644)
    os.close(made)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644
    for name in ("file", "link"):
        with pytest.raises(FileExistsError):
            descriptors.create_file(tmp_path / name, 0o600)


def nest(directory: Path, levels: int) -> None:
    """A chain of directories, each with a file, deeper than any path may be long."""
    opened = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=opened)
        inner = os.open("d", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = inner
        os.close(os.open("f", os.O_CREAT, 0o600, dir_fd=opened))
    os.close(opened)


@pytest.mark.slow
def test_a_tree_of_any_depth_is_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    nest(tree, 3000)
    descriptors.remove_tree(tree)
    assert not tree.exists()


@pytest.mark.slow
def test_a_wide_tree_is_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in range(1100):
        (tree / str(name) / "inner").mkdir(parents=True)
    descriptors.remove_tree(tree)
    assert not tree.exists()


def test_removing_a_tree_follows_no_link_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "link").symlink_to(tmp_path / "kept")
    (tree / "inner" / "link").symlink_to(tmp_path / "kept" / "file")
    descriptors.remove_tree(tree)
    assert (tmp_path / "kept" / "file").read_text() == "kept"
    assert not tree.exists()


def test_a_link_in_place_of_the_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "tree").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError):
        descriptors.remove_tree(tmp_path / "tree")
    assert (tmp_path / "kept").is_dir()
