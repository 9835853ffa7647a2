"""Memory that was freed goes back to the system, from whichever thread."""

from __future__ import annotations

import subprocess
import sys

import pytest

from orch.component.process import daemon

GROWS = """
import threading
from pathlib import Path
from orch.component.process import daemon

def resident_kib():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])

def work(bytes_each):
    [b"x" * bytes_each for _ in range(20_000_000 // bytes_each)]

print(daemon.configure_allocator())
before = resident_kib()
for size in (2_000_000, 600_000, 9_000_000):
    threads = [threading.Thread(target=work, args=(size,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(resident_kib() - before)
"""


def test_what_threads_allocated_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", GROWS], capture_output=True, text=True, check=True)
    is_set, grown_kib = done.stdout.split()
    if is_set == "False":
        pytest.skip("this C library has no mallopt")
    assert int(grown_kib) < 5_000


def test_a_c_library_without_the_settings_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon.ctypes, "CDLL", lambda _: object())
    assert not daemon.configure_allocator()
