"""Single cgroup files → numbers; texts from Documentation/admin-guide/cgroup-v2.rst and v1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.stats.cgroup import values
from nodeagent.stats.samples import CpuSample, DeviceIo

MAX = 2**64 - 1
PARSERS: list[Callable[[bytes], Any]] = [
    values.parse_number,
    values.parse_limit,
    values.parse_cpu_stat,
    values.parse_cpuacct_stat,
    values.parse_throttling,
    values.parse_memory_stat,
    values.parse_memory_stat_v1,
    values.parse_memory_events,
    values.parse_oom_control,
    values.count_lines,
    values.parse_io_stat,
    values.parse_blkio,
    values.parse_cpu_max,
]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"0\n", 0),
        (b"34603008\n", 34603008),
        (b"18446744073709551615\n", MAX),
        (b"18446744073709551616\n", None),
        (b"-1\n", None),
        (b"max\n", None),
        (b"", None),
        (b"12 34\n", None),
        (b"9" * 5000, None),
    ],
)
def test_a_number_fits_64_bits_or_is_none(data: bytes, expected: int | None) -> None:
    assert values.parse_number(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"268435456\n", 268435456),
        (b"max\n", None),
        (b"-1\n", None),
        (b"9223372036854771712\n", None),  # v1: no limit on 4 KiB pages
        (b"9223372036854710272\n", None),  # and on 64 KiB pages
        (b"0\n", 0),
    ],
)
def test_no_limit_is_none_however_the_kernel_writes_it(data: bytes, expected: int | None) -> None:
    assert values.parse_limit(data) == expected


def test_a_key_is_a_whole_word_at_the_beginning_of_a_line() -> None:
    numbers = values.LineNumbers("file active_file inactive_file anon")
    assert numbers(b"inactive_file 1\nfile 2\nactive_file 3\n") == [2, 3, 1, None]


def test_lines_may_move_between_two_texts() -> None:
    numbers = values.LineNumbers("anon file")
    assert numbers(b"anon 1\nfile 2\n") == [1, 2]
    assert numbers(b"new 0\nfile 3\nanon 4\n") == [4, 3]
    assert numbers(b"file 5\n") == [None, 5]
    assert numbers(b"anon 6\nfile 7\n") == [6, 7], "what was missing once is found again"
    assert numbers(b"") == [None, None]


def test_a_truncated_last_line_is_read_as_far_as_it_goes() -> None:
    numbers = values.LineNumbers("anon file")
    assert numbers(b"anon 1\nfile 23") == [1, 23]
    assert numbers(b"anon 1\nfile ") == [1, None]
    assert numbers(b"anon 1\nfi") == [1, None]


_TEXT_KEYS = ["anon", "file", "file_mapped", "active_file"]


@given(st.lists(st.dictionaries(st.sampled_from(_TEXT_KEYS), st.integers(0, MAX)), max_size=6))
def test_remembered_lines_never_change_the_answer(texts: list[dict[str, int]]) -> None:
    numbers = values.LineNumbers(" ".join(_TEXT_KEYS))
    for text in texts:
        data = "".join(f"{key} {number}\n" for key, number in text.items()).encode()
        assert numbers(data) == [text.get(key) for key in _TEXT_KEYS]


def test_cpu_stat_has_bandwidth_only_with_the_controller() -> None:
    plain = b"usage_usec 5\nuser_usec 3\nsystem_usec 2\nnice_usec 0\n"
    assert values.parse_cpu_stat(plain) == CpuSample(5000, 3000, 2000)
    limited = plain + b"nr_periods 600\nnr_throttled 250\nthrottled_usec 9\nnr_bursts 0\n"
    assert values.parse_cpu_stat(limited) == CpuSample(5000, 3000, 2000, 600, 250, 9000)


def test_microseconds_that_overflow_nanoseconds_are_none() -> None:
    assert values.parse_cpu_stat(b"usage_usec 18446744073709551615\n") is None


def test_ticks_become_nanoseconds() -> None:
    assert values.parse_cpuacct_stat(b"user 9000\nsystem 3345\n") == (
        90_000_000_000,
        33_450_000_000,
    )


def test_v1_memory_is_that_of_the_whole_subtree() -> None:
    stat = values.parse_memory_stat_v1(
        b"cache 1\nrss 2\ninactive_file 3\npgfault 4\ntotal_cache 10\ntotal_rss 20\n"
        b"total_mapped_file 30\ntotal_swap 40\ntotal_pgfault 50\ntotal_pgmajfault 60\n"
        b"total_inactive_file 70\ntotal_active_file 80\n"
    )
    assert stat == (20, 10, None, 30, 70, 80, 40, 50, 60)


def test_a_memory_stat_without_any_known_key_is_none() -> None:
    assert values.parse_memory_stat(b"unknown 1\n") is None
    assert values.parse_memory_stat_v1(b"") is None


def test_io_stat_keeps_the_good_lines() -> None:
    data = (
        b"8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n"
        b"8:x rbytes=1\n"
        b"254:16 rbytes=7\n"
        b"(null) rbytes=1\n"
    )
    assert values.parse_io_stat(data) == (
        DeviceIo(8, 0, 1, 2, 3, 4),
        DeviceIo(254, 16, 7, None, None, None),
    )
    assert values.parse_io_stat(b"") == ()


def test_blkio_pairs_reads_and_writes_per_device() -> None:
    data = b"8:0 Read 1\n8:0 Write 2\n8:0 Total 3\n8:16 Read 4\nTotal 7\n"
    assert values.parse_blkio(data) == {(8, 0): (1, 2), (8, 16): (4, None)}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"max 100000\n", (None, 100000)),
        (b"50000 100000\n", (50000, 100000)),
        (b"50000\n", (None, None)),
    ],
)
def test_cpu_max_is_quota_and_period(data: bytes, expected: object) -> None:
    assert values.parse_cpu_max(data) == expected


@pytest.mark.parametrize(("weight", "shares"), [(1, 2), (100, 2597), (10000, 262144)])
def test_weights_become_shares_as_the_runtimes_convert(weight: int, shares: int) -> None:
    assert values.shares_from_weight(weight) == shares


def numbers_in(result: Any) -> Iterator[Any]:
    """What a parser found, out of its records, lists and dicts; None is nothing."""
    if isinstance(result, dict):
        yield from numbers_in(tuple(result.items()))
    elif isinstance(result, tuple | list):
        for part in result:
            yield from numbers_in(part)
    elif result is not None:
        yield result


def is_counted(result: Any) -> bool:
    return all(isinstance(number, int) and number >= 0 for number in numbers_in(result))


@pytest.mark.parametrize("parse", PARSERS)
@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_are_counts_or_nothing(parse: Callable[[bytes], Any], data: bytes) -> None:
    assert is_counted(parse(data))


_KEYS = [b"usage_usec", b"anon", b"file", b"total_cache", b"nr_periods", b"8:0 rbytes", b"oom_kill"]
_LINES = st.lists(
    st.tuples(st.sampled_from(_KEYS), st.sampled_from([b" ", b"=", b"\t"]), st.binary(max_size=25)),
    max_size=8,
).map(lambda rows: b"\n".join(b"".join(row) for row in rows))


@pytest.mark.parametrize("parse", PARSERS)
@given(data=_LINES)
def test_absurd_values_of_known_keys_are_counts_or_nothing(
    parse: Callable[[bytes], Any], data: bytes
) -> None:
    assert is_counted(parse(data))


@given(st.lists(st.integers(0, MAX), min_size=9, max_size=9))
def test_every_number_of_memory_stat_comes_back(numbers: list[int]) -> None:
    keys = ["anon", "file", "kernel", "file_mapped", "inactive_file", "active_file"]
    keys += ["pgfault", "pgmajfault"]
    data = "".join(f"{key} {number}\n" for key, number in zip(keys, numbers, strict=False))
    stat = values.parse_memory_stat(data.encode())
    assert stat == (*numbers[:6], None, *numbers[6:8])
