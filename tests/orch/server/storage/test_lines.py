from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orch.server.storage.base import Write
from orch.server.storage.lines import COMMIT_BYTES, COMMIT_WRITES, Lines, Queued

MIB = 1024 * 1024
CHECK = Queued((), None)


def write(key: str, size: int = 1) -> Queued:
    return Queued((Write(key, bytes(size), 0),), None)


def keys(batch: Iterable[Queued]) -> list[str]:
    return [queued.writes[0].key for queued in batch if queued.writes]


def commits(lines: Lines) -> list[list[Queued]]:
    """All of them, until nothing is left."""
    taken = []
    while lines.waiting:
        taken.append(lines.take())
    return taken


@pytest.mark.parametrize("size", [0, 1, 11_000, COMMIT_BYTES, COMMIT_BYTES + 1, 3 * MIB])
@pytest.mark.parametrize("key", ["/pods/b/x", "/leases.coordination/orch-node-lease/n", "/nodes/n"])
def test_nobody_waits_for_all_that_another_has_queued(size: int, key: str) -> None:
    lines = Lines()
    for number in range(2000):
        lines.put(write(f"/pods/a/{number}", size))
    lines.put(write(key, 400))
    first, second, *_ = commits(lines)
    assert key in keys((*first, *second))


@pytest.mark.parametrize("size", [11_000, 3 * MIB])
def test_nobody_waits_for_the_bytes_of_a_flood_twice(size: int) -> None:
    lines = Lines()
    for number in range(2000):
        lines.put(write(f"/pods/a/{number}", size))
    assert lines.take()
    for _ in range(3):
        lines.put(write("/pods/b/x", 400))
        assert keys(lines.take()) == ["/pods/b/x"]
        assert {key[: len("/pods/a")] for key in keys(lines.take())} == {"/pods/a"}


def test_nobody_waits_for_large_writes_of_many() -> None:
    lines = Lines()
    for number in range(1000):
        lines.put(write(f"/pods/a{number % 50}/{number}", MIB))
    lines.put(write("/pods/b/x", 400))
    assert "/pods/b/x" in keys(lines.take())


def test_all_have_as_many_in_a_commit() -> None:
    lines = Lines()
    for space in "abc":
        for number in range(100):
            lines.put(write(f"/pods/{space}/{number}", COMMIT_BYTES // 9))
    assert keys(lines.take()) == [f"/pods/{space}/{n}" for n in range(3) for space in "abc"]


def test_what_did_not_fit_comes_first_in_the_next_commit() -> None:
    lines = Lines()
    for number in range(10):
        lines.put(write(f"/pods/a/{number}", COMMIT_BYTES // 10))
        lines.put(write(f"/pods/b/{number}", COMMIT_BYTES))
    assert keys(lines.take())[0] == "/pods/a/0"
    assert keys(lines.take())[0] == "/pods/b/0"


@pytest.mark.parametrize("before", ["/pods/a/x", "/quotas/a/x"])
def test_a_namespace_changes_after_what_was_written_into_it_before(before: str) -> None:
    """What is written into it was judged by the state it had."""
    lines = Lines()
    for number in range(100):
        lines.put(write(f"{before}{number}", COMMIT_BYTES))
    lines.put(write("/namespaces/a"))
    assert keys(commits(lines)[-1]) == ["/namespaces/a"]


def test_a_check_says_that_everything_before_it_is_written() -> None:
    lines = Lines()
    for number in range(3):
        lines.put(write(f"/pods/a/{number}", COMMIT_BYTES))
    lines.put(CHECK)
    for number in range(3, 6):
        lines.put(write(f"/pods/a/{number}", COMMIT_BYTES))
    taken = commits(lines)
    assert [CHECK in batch for batch in taken] == [False, False, True, False, False, False]


def test_a_check_alone_is_a_commit() -> None:
    lines = Lines()
    lines.put(CHECK)
    assert commits(lines) == [[CHECK]]


sizes = st.sampled_from([None, 1, 400, 11_000, COMMIT_BYTES, 2 * COMMIT_BYTES, MIB])


@given(st.lists(st.tuples(st.sampled_from("abcd"), sizes), max_size=60))
def test_a_commit_is_bounded_and_each_line_keeps_its_order(asked) -> None:
    lines = Lines()
    queued = [
        CHECK if size is None else write(f"/pods/{space}/{number}", size)
        for number, (space, size) in enumerate(asked)
    ]
    for each in queued:
        lines.put(each)
    taken = commits(lines)
    assert all(taken), "a commit of nothing"
    for batch in taken:
        small = [each.size for each in batch if each.size <= COMMIT_BYTES]
        assert sum(small) <= COMMIT_BYTES
        assert len(batch) - len(small) <= 1
    written = [key for batch in taken for key in keys(batch)]
    for space in "abcd":
        theirs = [key for key in keys(queued) if key.startswith(f"/pods/{space}/")]
        assert [key for key in written if key in theirs] == theirs
    assert sum(map(len, taken)) == len(queued)


def test_a_commit_of_small_writes_is_bounded_by_their_number() -> None:
    lines = Lines()
    for number in range(COMMIT_WRITES + 1):
        lines.put(write(f"/pods/a/{number}", 0))
    assert [len(batch) for batch in commits(lines)] == [COMMIT_WRITES, 1]
