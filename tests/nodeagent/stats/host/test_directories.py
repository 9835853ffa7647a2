"""Last good values of directories, and the budget that keeps them coming."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from nodeagent.stats.host.directories import DirectoryUsage, WalkBudget
from tests.fakes.hosts import Clock


def fill(directory: Path, files: int) -> None:
    directory.mkdir(exist_ok=True)
    for index in range(files):
        (directory / str(index)).write_bytes(b"x" * 5000)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def usage_of(clock: Clock, **more: object) -> DirectoryUsage:
    return DirectoryUsage(budget=WalkBudget(inodes=5), wall_ns=clock, **more)  # type: ignore[arg-type]


def slow_usage(clock: Clock) -> DirectoryUsage:
    """A second passes with every look at the clock, and five are the budget."""
    seconds = itertools.count(1.0)
    return DirectoryUsage(
        budget=WalkBudget(time_s=1000),
        refresh_budget_s=5,
        wall_ns=clock,
        monotonic_s=lambda: next(seconds),
    )


def test_a_value_carries_the_stamp_of_its_walk(tmp_path: Path, clock: Clock) -> None:
    fill(tmp_path / "v", 2)
    usage = usage_of(clock)
    assert usage.latest.get(str(tmp_path / "v")) is None
    usage.refresh({str(tmp_path / "v"): True})
    value = usage.latest.get(str(tmp_path / "v"))
    assert value and (value.time_ns, value.inodes_used) == (clock.now_ns, 3)


def test_a_spent_budget_keeps_the_last_good_value_with_its_own_stamp(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "v")
    fill(tmp_path / "v", 2)
    usage = usage_of(clock)
    usage.refresh({path: True})
    first = usage.latest.get(path)
    fill(tmp_path / "v", 10)
    clock.advance(60)
    usage.refresh({path: True})
    assert usage.latest.get(path) is first
    assert usage.walks_given_up == 1
    assert path in caplog.text and "more than 5 inodes" in caplog.text


def test_a_directory_too_big_is_walked_less_and_less_often_and_logged_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path / "v", 10)
    usage = usage_of(clock)
    tries = []
    for _ in range(20):
        before = usage.walks_given_up
        usage.refresh({str(tmp_path / "v"): True})
        tries.append(usage.walks_given_up - before)
    assert [round_ for round_, tried in enumerate(tries) if tried] == [0, 2, 5, 10, 19]
    assert len(caplog.messages) == 1


def test_a_directory_that_is_gone_has_no_value(tmp_path: Path, clock: Clock) -> None:
    fill(tmp_path / "v", 1)
    usage = usage_of(clock)
    usage.refresh({str(tmp_path / "v"): True})
    (tmp_path / "v" / "0").unlink()
    (tmp_path / "v").rmdir()
    usage.refresh({str(tmp_path / "v"): True})
    assert usage.latest.get(str(tmp_path / "v")) is None


def test_directories_no_longer_wanted_are_forgotten(tmp_path: Path, clock: Clock) -> None:
    small, big = tmp_path / "small", tmp_path / "big"
    fill(small, 1)
    fill(big, 50)
    wanted = {str(small): True, str(big): True}
    usage = usage_of(clock)
    usage.refresh(wanted)
    usage.refresh({})
    assert (usage.latest, usage.walks_given_up) == ({}, 1)
    usage.refresh(wanted)
    assert usage.walks_given_up == 2, "nor is a walk skipped that was given up before"


def test_directories_beyond_the_budget_come_first_next_time_and_it_is_logged_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [str(tmp_path / name) for name in "abc"]
    for path in paths:
        fill(Path(path), 1)
    usage = slow_usage(clock)
    wanted = dict.fromkeys(paths, True)
    usage.refresh(wanted)
    measured = [path for path in paths if usage.latest.get(path)]
    assert 0 < len(measured) < 3
    clock.advance(60)
    usage.refresh(wanted)
    clock.advance(60)
    usage.refresh(wanted)
    assert all(usage.latest.get(path) for path in paths)
    assert len(caplog.messages) == 1 and "takes more than 5 s" in caplog.text


def test_only_new_directories_are_walked(tmp_path: Path, clock: Clock) -> None:
    old, new, gone = (str(tmp_path / name) for name in ("old", "new", "gone"))
    fill(Path(old), 1)
    usage = usage_of(clock)
    usage.refresh({old: True})
    then_ns = clock.now_ns
    fill(Path(new), 2)
    clock.advance(10)
    usage.refresh_new({old: True, new: True, gone: True})
    assert [usage.latest.get(path) and usage.latest.get(path).time_ns for path in (old, new)] == [  # type: ignore[union-attr]
        then_ns,
        clock.now_ns,
    ]
    assert usage.latest.get(gone) is None
    fill(Path(gone), 1)
    usage.refresh_new({old: True, new: True, gone: True})
    assert usage.latest.get(gone) is None, "it was tried, and is again with all others"
    usage.refresh({old: True, new: True, gone: True})
    assert usage.latest.get(gone) is not None


def test_new_directories_keep_to_the_budget_and_leave_the_rest_to_the_next_refresh(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = {str(tmp_path / name): True for name in "abc"}
    for path in wanted:
        fill(Path(path), 1)
    usage = slow_usage(clock)
    usage.refresh_new(wanted)
    assert 0 < sum(usage.latest.get(path) is not None for path in wanted) < 3
    assert (usage.duration_s, caplog.messages) == (0.0, [])
    usage.refresh_new(wanted)
    assert all(usage.latest.get(path) for path in wanted)


def test_what_is_too_large_to_be_measured_is_named_until_it_fits(
    tmp_path: Path, clock: Clock
) -> None:
    path = str(tmp_path / "v")
    fill(tmp_path / "v", 10)
    usage = usage_of(clock)
    usage.refresh({path: True})
    assert usage.excessive == {path: "it has more than 5 inodes"}
    for index in range(8):
        (tmp_path / "v" / str(index)).unlink()
    usage.refresh({path: True})  # skipped once
    usage.refresh({path: True})
    assert usage.excessive == {}


def test_a_forgotten_directory_is_no_longer_excessive(tmp_path: Path, clock: Clock) -> None:
    fill(tmp_path / "v", 10)
    usage = usage_of(clock)
    usage.refresh({str(tmp_path / "v"): True})
    usage.refresh({})
    assert usage.excessive == {}


def test_a_slow_disk_makes_no_directory_excessive(tmp_path: Path, clock: Clock) -> None:
    fill(tmp_path / "v", 10)
    seconds = itertools.count(0.0, 10.0)
    usage = DirectoryUsage(wall_ns=clock, monotonic_s=lambda: next(seconds))
    usage.refresh({str(tmp_path / "v"): True})
    assert usage.walks_given_up == 1
    assert usage.excessive == {}
