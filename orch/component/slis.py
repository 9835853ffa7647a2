"""Health as metrics (`/metrics/slis`): the last result of each check, and counts of all results.

Names, labels and texts are the specification's; the label sets never change. Written only when an
aggregate health endpoint is asked, so the page is empty of checks before that.
"""

from __future__ import annotations

from orch.component import clock

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GAUGE = "orch_healthcheck"
_GAUGE_HEAD = (
    f"# HELP {_GAUGE} [ALPHA] This metric records the result of a single healthcheck.\n"
    f"# TYPE {_GAUGE} gauge\n"
)
_COUNTER = "orch_healthchecks_total"
_COUNTER_HEAD = (
    f"# HELP {_COUNTER} [STABLE] This metric records the results of all healthcheck.\n"
    f"# TYPE {_COUNTER} counter\n"
)
_START = "process_start_time_seconds"
_START_HEAD = (
    f"# HELP {_START} [ALPHA] Start time of the process since unix epoch in seconds.\n"
    f"# TYPE {_START} gauge\n"
)


class SliMetrics:
    """Counts per check, endpoint (healthz, livez, readyz) and result, since the last reset."""

    def __init__(self, *, process_start_s: float | None = None) -> None:
        start_s = clock.process_start_s() if process_start_s is None else process_start_s
        self._start = f"{_START_HEAD}{_START} {start_s:.2f}\n"
        self._last: dict[tuple[str, str], bool] = {}
        self._totals: dict[tuple[str, str, str], int] = {}

    def record(self, name: str, endpoint: str, ok: bool) -> None:
        self._last[name, endpoint] = ok
        key = (name, "success" if ok else "error", endpoint)
        self._totals[key] = self._totals.get(key, 0) + 1

    def reset(self) -> None:
        self._last.clear()
        self._totals.clear()

    def render(self) -> bytes:
        """The page as Prometheus text; check names need no escaping, they are path segments."""
        lines = []
        if self._last:
            lines.append(_GAUGE_HEAD)
            for (name, endpoint), ok in sorted(self._last.items()):
                lines.append(f'{_GAUGE}{{name="{name}",type="{endpoint}"}} {int(ok)}\n')
            lines.append(_COUNTER_HEAD)
            for (name, status, endpoint), count in sorted(self._totals.items()):
                labels = f'name="{name}",status="{status}",type="{endpoint}"'
                lines.append(f"{_COUNTER}{{{labels}}} {count}\n")
        lines.append(self._start)
        return "".join(lines).encode()
