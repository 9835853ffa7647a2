"""How much directories use: last good values, refreshed at a slow cadence of their own.

A directory whose walk exceeds its budget keeps its old value and is walked less often from then
on, up to a sixteenth. One refresh has a budget of its own too: what it does not reach is first in
the next one. In between those are walked that are new. Values are read from the sampling thread
while a refresh replaces them one by one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from nodeagent.stats import walk
from nodeagent.stats.samples import FsSample
from nodeagent.stats.walk import BudgetSpent, WalkBudget
from orch.component import clock

log = logging.getLogger(__name__)

REFRESH_BUDGET_S = 20.0
_MAX_SKIPPED = 15


@dataclass(slots=True)
class _Entry:
    value: FsSample | None = None
    skip: int = 0  # refreshes to leave out before the next walk
    next_skip: int = 1


class DirectoryUsage:
    """`spent` counts walks given up; `duration_s` is that of the last refresh of all."""

    def __init__(
        self,
        *,
        budget: WalkBudget | None = None,
        refresh_budget_s: float = REFRESH_BUDGET_S,
        wall_ns: Callable[[], int] = clock.wall_ns,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spent = 0
        self.duration_s = 0.0
        self._budget = budget or WalkBudget()
        self._refresh_budget_s = refresh_budget_s
        self._wall_ns = wall_ns
        self._monotonic_s = monotonic_s
        self._entries: dict[str, _Entry] = {}
        self._late = False

    def latest(self, path: str) -> FsSample | None:
        """The last good value with the stamp of its walk; None before the first."""
        entry = self._entries.get(path)
        return entry.value if entry else None

    def refresh(self, wanted: Mapping[str, bool]) -> None:
        """Walk the wanted directories (path → whether recursively) and forget all others."""
        for path in self._entries.keys() - wanted.keys():
            del self._entries[path]
        begun_s = self._monotonic_s()
        unreached = self._walk(sorted(wanted, key=self._age), wanted)
        if unreached and not self._late:
            log.warning(
                "measuring all directories takes more than %g s: disk use is shown with an older"
                " stamp, that of %s first",
                self._refresh_budget_s,
                unreached,
            )
        self._late = bool(unreached)
        self.duration_s = self._monotonic_s() - begun_s

    def refresh_new(self, wanted: Mapping[str, bool]) -> None:
        """Walk those of the wanted directories that were never tried; same budget, others stay."""
        self._walk([path for path in wanted if path not in self._entries], wanted)

    def _walk(self, paths: Iterable[str], wanted: Mapping[str, bool]) -> str:
        """The first of the paths that the budget does not reach; "" when all were reached."""
        begun_s = self._monotonic_s()
        for path in paths:
            if self._monotonic_s() - begun_s > self._refresh_budget_s:
                return path
            self._measure(path, self._entries.setdefault(path, _Entry()), wanted[path])
        return ""

    def _age(self, path: str) -> int:
        value = self.latest(path)
        return value.time_ns if value else 0

    def _measure(self, path: str, entry: _Entry, recursive: bool) -> None:
        if entry.skip:
            entry.skip -= 1
            return
        time_ns = self._wall_ns()
        try:
            use = walk.measure_directory(
                path, self._budget, recursive=recursive, monotonic_s=self._monotonic_s
            )
        except BudgetSpent as error:
            self.spent += 1
            if entry.next_skip == 1:  # the first time in a row
                log.warning("giving up measuring %s: %s; its last value is kept", path, error)
            entry.skip = entry.next_skip
            entry.next_skip = min(entry.next_skip * 2, _MAX_SKIPPED)
            return
        entry.next_skip = 1
        if use is None:
            entry.value = None
        else:
            entry.value = FsSample(time_ns, used_bytes=use.used_bytes, inodes_used=use.inodes_used)
