"""The limits that the benchmarks state, held by `make soak`: agent, heartbeats, slow clients."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("idle", {"BENCH_IDLE_SECONDS": "60"}),
        ("heartbeat_cost", {"BENCH_HEARTBEAT_SECONDS": "60"}),
        ("slow_clients", {"BENCH_SLOW_SECONDS": "60"}),
    ],
)
def test_every_stated_limit_is_met(name: str, setting: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench", name],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **setting},
        timeout=840,
    )
    assert done.returncode == 0, done.stdout + done.stderr
