"""Walking directories: what counts, what does not, and when a walk gives up."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

import pytest

from nodeagent.stats.host.directories import (
    MAX_DEPTH,
    BudgetSpent,
    DirectoryUsage,
    WalkBudget,
    measure_directory,
)

PLENTY = WalkBudget()


def blocks(*paths: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in paths)


def test_everything_below_counts_by_blocks_the_directory_itself_included(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "one").write_bytes(b"x" * 10_000)
    (inner / "two").write_bytes(b"x" * 5)
    use = measure_directory(str(tmp_path), PLENTY)
    everything = [tmp_path, tmp_path / "a", inner, tmp_path / "one", inner / "two"]
    assert use == (blocks(*everything), 5)


def test_a_sparse_file_uses_what_it_occupies(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    use = measure_directory(str(tmp_path), PLENTY, recursive=False)
    assert use is not None and use.used_bytes < 1 << 20


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 10_000)
    os.link(tmp_path / "one", tmp_path / "two")
    assert measure_directory(str(tmp_path), PLENTY) == (blocks(tmp_path, tmp_path / "one"), 2)


def test_links_are_not_followed_out_of_the_directory(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    volume.mkdir()
    outside.mkdir()
    (outside / "big").write_bytes(b"x" * 100_000)
    (volume / "link").symlink_to(outside)
    use = measure_directory(str(volume), PLENTY)
    assert use is not None and use.inodes_used == 2 and use.used_bytes < 100_000


def test_a_root_that_is_a_link_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert measure_directory(str(tmp_path / "link"), PLENTY) is None


def test_a_directory_replaced_by_a_link_during_the_walk_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    (volume / "inner").mkdir(parents=True)
    outside.mkdir()
    (outside / "big").write_bytes(b"x" * 100_000)
    real_open = os.open

    def swapping(path: str, flags: int, **more: int) -> int:
        if path == "inner":
            (volume / "inner").rmdir()
            (volume / "inner").symlink_to(outside)
        return real_open(path, flags, **more)

    monkeypatch.setattr(os, "open", swapping)
    use = measure_directory(str(volume), PLENTY)
    assert use is not None and use.used_bytes < 100_000


def test_other_file_systems_are_not_entered() -> None:
    if Path("/dev/shm").stat().st_dev == Path("/dev").stat().st_dev:
        pytest.skip("/dev/shm is not a file system of its own here")
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        file.write(b"x" * 1_000_000)
        file.flush()
        use = measure_directory("/dev", PLENTY)
    assert use is not None and use.used_bytes < 1_000_000


def test_log_directories_count_their_plain_files_only(tmp_path: Path) -> None:
    (tmp_path / "0.log").write_bytes(b"x" * 9000)
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "big").write_bytes(b"x" * 100_000)
    use = measure_directory(str(tmp_path), PLENTY, recursive=False)
    assert use == (blocks(tmp_path / "0.log"), 1)


def test_a_path_that_is_missing_or_not_a_directory_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert measure_directory(str(tmp_path / "gone"), PLENTY) is None
    assert measure_directory(str(tmp_path / "file"), PLENTY) is None


def test_too_many_inodes_spend_the_budget(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / str(index)).touch()
    with pytest.raises(BudgetSpent, match="more than 10 inodes"):
        measure_directory(str(tmp_path), WalkBudget(inodes=10))


@pytest.mark.slow
def test_half_a_million_inodes_exceed_what_the_agent_measures() -> None:
    """In memory, where it takes seconds to make them."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        for number in range(510):
            directory = Path(name) / str(number)
            directory.mkdir()
            for file in range(1000):
                os.mknod(directory / str(file))
        usage = DirectoryUsage(budget=WalkBudget(time_s=60))
        usage.refresh({name: True})
        assert usage.excessive == {name: "it has more than 500000 inodes"}


def test_too_much_time_spends_the_budget(tmp_path: Path) -> None:
    now = iter([0.0, 3.0, 3.0])
    with pytest.raises(BudgetSpent, match=r"2\.0 s passed"):
        measure_directory(str(tmp_path), WalkBudget(time_s=2.0), monotonic_s=lambda: next(now))


def test_each_name_of_a_file_spends_time(tmp_path: Path) -> None:
    """Millions of hard links are one inode, and took as long as they liked."""
    (tmp_path / "file").touch()
    for number in range(3000):
        os.link(tmp_path / "file", tmp_path / str(number))
    seconds = itertools.count()
    with pytest.raises(BudgetSpent, match=r"2\.0 s passed after 2000 entries"):
        measure_directory(str(tmp_path), WalkBudget(time_s=2.0), monotonic_s=lambda: next(seconds))


def test_a_tree_built_to_exhaust_descriptors_is_given_up_and_leaves_none_open(
    tmp_path: Path,
) -> None:
    deep = tmp_path
    for _ in range(MAX_DEPTH + 2):
        deep = deep / "d"
    deep.mkdir(parents=True)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(BudgetSpent, match="deeper"):
        measure_directory(str(tmp_path), PLENTY)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before  # earlier tests may close theirs
