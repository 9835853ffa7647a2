"""File systems and block devices."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.stats.host import filesystems
from nodeagent.stats.samples import FsSample

DISKSTATS = b"""\
   8       0 sda 8950 1252 90430464 1 2 3 4 5 6 7 8
 254       1 vda1 8950 1252 90430464 1 2 3 4 5 6 7 8
   x       1 bad 1
 253
"""


def test_a_file_system_adds_up(tmp_path: Path) -> None:
    sample = filesystems.read_filesystem(str(tmp_path), 7)
    assert sample and sample.time_ns == 7
    assert sample.capacity_bytes and sample.used_bytes is not None and sample.available_bytes
    assert sample.used_bytes + sample.available_bytes <= sample.capacity_bytes


def test_a_path_that_is_gone_has_no_file_system(tmp_path: Path) -> None:
    assert filesystems.read_filesystem(str(tmp_path / "gone"), 7) is None
    assert filesystems.device_of(str(tmp_path / "gone"), {}) == ""


def test_a_file_system_without_inodes_does_not_claim_none_are_free() -> None:
    sample = filesystems.read_filesystem("/proc", 7)
    assert sample and sample.inodes is sample.inodes_free is sample.inodes_used is None


def test_devices_are_named_as_the_kernel_names_them() -> None:
    assert filesystems.parse_diskstats(DISKSTATS) == {(8, 0): "sda", (254, 1): "vda1"}


@given(st.binary(max_size=200))
def test_arbitrary_diskstats_name_devices_or_nothing(data: bytes) -> None:
    for (major, minor), name in filesystems.parse_diskstats(data).items():
        assert major >= 0 and minor >= 0 and name


def test_a_part_is_shown_within_its_whole() -> None:
    whole = FsSample(1, 10, 20, 5, 30, 40, 10)
    part = FsSample(2, used_bytes=3, inodes_used=4)
    assert filesystems.within(whole, part) == FsSample(2, 10, 20, 3, 30, 40, 4)
    assert filesystems.within(None, part) is part
    assert filesystems.within(whole, None) is None


def answer(**more: int) -> SimpleNamespace:
    numbers = {"f_frsize": 4096, "f_blocks": 10, "f_bfree": 4, "f_bavail": 3}
    return SimpleNamespace(**(numbers | {"f_files": 8, "f_ffree": 5} | more))


@pytest.mark.parametrize(
    ("absurd", "sample"),
    [
        ({}, FsSample(7, 3 * 4096, 10 * 4096, 6 * 4096, 5, 8, 3)),
        ({"f_ffree": 2**64 - 1}, FsSample(7, 3 * 4096, 10 * 4096, 6 * 4096)),  # cephfs
        ({"f_bfree": 11}, FsSample(7, 3 * 4096, 10 * 4096, None, 5, 8, 3)),
        ({"f_blocks": 2**64 - 1, "f_bfree": 0}, FsSample(7, 3 * 4096, None, None, 5, 8, 3)),
    ],
)
def test_absurd_figures_of_a_file_system_are_none(
    absurd: dict[str, int], sample: FsSample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystems.os, "statvfs", lambda path: answer(**absurd))
    assert filesystems.read_filesystem("/", 7) == sample
