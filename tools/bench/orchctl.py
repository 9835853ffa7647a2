"""The start of `orchctl`: from the shell to its first byte, compared with an empty Python program.

As installed (code compiled), with a warm file cache; the median and the worst of many.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tools.bench.table import Table

STARTS = 30
PROGRAM = Path(sys.executable).with_name("orchctl")
LIMIT_MS = 150
_SHOWN = {
    "version --client": ("version", "--client"),
    "get --help": ("get", "--help"),
    "drain --help": ("drain", "--help"),
}


def main() -> int:
    """Run the benchmark; the number of missed limits."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed command has its code compiled
    table = Table()
    empty_s = statistics.median(_starts([sys.executable, "-c", "print()"]))
    table.row("empty Python program: first output, median", empty_s * 1000, unit=" ms")
    for name, words in _SHOWN.items():
        used_s = _children_cpu_s()
        taken_s = _starts([str(PROGRAM), *words])
        used_s = (_children_cpu_s() - used_s) / (STARTS + 1)
        limit_ms = LIMIT_MS if words[0] == "version" else None
        what = f"orchctl {name}: first output"
        table.row(
            f"{what}, median", statistics.median(taken_s) * 1000, at_most=limit_ms, unit=" ms"
        )
        table.row(f"{what}, worst of {STARTS}", max(taken_s) * 1000, unit=" ms")
        table.row(f"orchctl {name}: CPU, mean", used_s * 1000, unit=" ms")
    print(f"\n{table.markdown()}")
    return table.missed


def _starts(command: list[str]) -> list[float]:
    """Seconds to the first byte of output, once it has been run."""
    return [_first_byte_s(command) for _ in range(STARTS + 1)][1:]


def _children_cpu_s() -> float:
    """CPU seconds of the children that have exited, however busy the machine is."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _first_byte_s(command: list[str]) -> float:
    begin_s = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        taken_s = time.perf_counter() - begin_s
        process.stdout.read()
    return taken_s
