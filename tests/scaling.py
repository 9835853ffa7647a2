"""How the cost of a piece of work grows with its size."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

# Four times as much: linear work takes 4 times as long, quadratic work 16 times.
TIMES = 4
LINEAR = 9.0


def growth(make: Callable[[int], Callable[[], object]], size: int) -> float:
    """How many times the processor time four times the size takes; `make` prepares, untimed."""
    return _cost_s(make(TIMES * size)) / _cost_s(make(size))


def _cost_s(work: Callable[[], object]) -> float:
    best_s = float("inf")
    for _ in range(3):
        gc.collect()
        began_s = time.thread_time()
        work()
        best_s = min(best_s, time.thread_time() - began_s)
    return max(best_s, 1e-4)
