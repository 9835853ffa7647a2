import os
import time
from datetime import UTC, timedelta
from pathlib import Path

from orch.component.process import clock


def test_now_is_aware_and_in_utc() -> None:
    now = clock.utc_now()
    assert now.tzinfo is UTC
    assert abs(now.timestamp() * 1e9 - clock.wall_ns()) < timedelta(seconds=5).total_seconds() * 1e9


def test_the_process_began_when_the_kernel_says(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    fields = " ".join(str(n) for n in range(4, 22))
    ticks = 250 * os.sysconf("SC_CLK_TCK")
    (tmp_path / "self/stat").write_text(f"17 (a (strange) name) S {fields} {ticks} 99 99\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1700000000\nprocesses 5\n")
    assert clock.process_start_s(str(tmp_path)) == 1_700_000_250


def test_the_real_process_began_before_now() -> None:
    assert time.time() - 3600 * 24 < clock.process_start_s() <= time.time() + 1


def test_without_proc_the_process_began_now(tmp_path: Path) -> None:
    assert abs(clock.process_start_s(str(tmp_path)) - time.time()) < 5
