"""Keep-alives to systemd, sent only while the agent's own checks succeed.

Each tick runs the checks; a failing check withholds the keep-alive and is named in the log, in
STATUS and in `skipped`. Checks must not wait, nor depend on the API server or the runtime: their
outage is no reason to restart the agent.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

from orch.component.process.loops import Periodic
from orch.component.process.notify import Notifier

log = logging.getLogger(__name__)

Check = Callable[[], None]  # raises to fail


class Watchdog:
    """One keep-alive every `interval_s`; `skipped` counts withheld ones per check."""

    def __init__(
        self, notifier: Notifier, checks: Mapping[str, Check], *, interval_s: float
    ) -> None:
        self.skipped: Counter[str] = Counter()
        self._notifier = notifier
        self._checks = checks
        self._failing: frozenset[str] = frozenset()
        self._loop = Periodic("watchdog", self._tick, interval_s=interval_s)

    async def run(self) -> None:
        await self._loop.run()

    async def _tick(self) -> None:
        failing = {name: why for name, check in self._checks.items() if (why := _failure(check))}
        self.skipped.update(failing.keys())
        self._report(failing)
        if not failing:
            self._notifier.watchdog()

    def _report(self, failing: Mapping[str, str]) -> None:
        if failing.keys() == self._failing:
            return
        self._failing = frozenset(failing)
        if failing:
            text = "; ".join(f"{name}: {why}" for name, why in failing.items())
            log.error("withholding the watchdog keep-alive: %s", text)
            self._notifier.status(f"unhealthy: {text}")
        else:
            log.info("the watchdog keep-alive is sent again")
            self._notifier.status("healthy")


def _failure(check: Check) -> str:
    """Why the check failed, or ""."""
    try:
        check()
    except Exception as error:
        return str(error) or type(error).__name__
    return ""
