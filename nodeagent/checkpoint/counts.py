"""What the metrics page shows of checkpoints; written by the service, the pruner and the thaw."""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, field

BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True, slots=True)
class StoreState:
    """The store when it was last looked at; `excess_bytes` is what it may not hold, yet does."""

    archives: int = 0
    pinned: int = 0
    used_bytes: int = 0
    free_bytes: int = 0
    limit_bytes: int = 0  # 0: no limit
    excess_bytes: int = 0


@dataclass(slots=True)
class CheckpointCounts:
    """`results` by "success" and "error", `removed` by the bound's name."""

    results: Counter[str] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    thawed: int = 0
    store: StoreState | None = None  # None until it was looked at
    total_s: float = 0.0
    durations: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))

    def observe(self, duration_s: float) -> None:
        """A checkpoint was made in that time."""
        self.results["success"] += 1
        self.durations[bisect.bisect_left(BUCKETS_S, duration_s)] += 1
        self.total_s += duration_s
