"""Health endpoints (/healthz, /livez, /readyz) of named checks, and their results as metrics.

Bodies are those of the reference system: `ok`, a list with `?verbose`, always the list on failure,
and never the reason of a failure, which is logged. Every check has its own deadline and all run
concurrently, so that a hanging one neither hides nor delays the others. Names, labels and texts of
`/metrics/slis` are the specification's; it counts requests to the aggregate endpoints, and the
rounds of `HealthChecks.loop`, which looks whether anybody asks or not.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from aiohttp import web

from orch.component.http import negotiation
from orch.component.http.responses import render_text
from orch.component.process import system
from orch.component.process.log import is_losing_lines
from orch.component.process.loops import Periodic
from orch.component.process.once_log import OnceLog

log = logging.getLogger(__name__)

_GAUGE = "orch_healthcheck"
_GAUGE_HEAD = (
    f"# HELP {_GAUGE} [ALPHA] This metric records the result of a single healthcheck.\n"
    f"# TYPE {_GAUGE} gauge\n"
)
_COUNTER = "orch_healthchecks_total"
_COUNTER_HEAD = (
    "# HELP {0} [STABLE] This metric records the results of all healthcheck.\n# TYPE {0} counter\n"
)
_START = "process_start_time_seconds"
_START_HEAD = (
    f"# HELP {_START} [ALPHA] Start time of the process since unix epoch in seconds.\n"
    f"# TYPE {_START} gauge\n"
)


class SliMetrics:
    """Counts per check, endpoint (healthz, livez, readyz) and result, since the last reset."""

    def __init__(self, *, process_start_s: float | None = None) -> None:
        start_s = system.process_start_s() if process_start_s is None else process_start_s
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

    async def show(self, request: web.Request) -> web.Response:
        """The handler of /metrics/slis."""
        openmetrics = negotiation.wants_openmetrics(request.headers.get("Accept", ""))
        kind = negotiation.OPENMETRICS_TYPE if openmetrics else negotiation.TEXT_TYPE
        body = self.render(openmetrics=openmetrics)
        return web.Response(body=body, headers={"Content-Type": kind, "Vary": "Accept"})

    def render(self, *, openmetrics: bool = False) -> bytes:
        """The page as Prometheus text or OpenMetrics; check names are path segments and need no
        escaping.
        """
        lines = []
        if self._last:
            lines.append(_GAUGE_HEAD)
            for (name, endpoint), ok in sorted(self._last.items()):
                lines.append(f'{_GAUGE}{{name="{name}",type="{endpoint}"}} {int(ok)}\n')
            family = _COUNTER.removesuffix("_total") if openmetrics else _COUNTER
            lines.append(_COUNTER_HEAD.format(family))
            for (name, status, endpoint), count in sorted(self._totals.items()):
                labels = f'name="{name}",status="{status}",type="{endpoint}"'
                lines.append(f"{_COUNTER}{{{labels}}} {count}\n")
        lines.append(self._start)
        if openmetrics:
            lines.append("# EOF\n")
        return "".join(lines).encode()


ENDPOINTS = ("healthz", "livez", "readyz")
CHECK_TIMEOUT_S = 5.0
INTERVAL_S = 5.0
FIRST_ROUND_S = 1.0  # what is still starting is not logged as failing
_NUMBER = re.compile(r"\d+")

Check = Callable[[], Awaitable[None] | None]


class CheckFailed(Exception):
    """Raised by a failing check; the text is the reason."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`message` is empty when `ok`; an excluded check was not run and counts as ok."""

    name: str
    ok: bool
    message: str = ""
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class _Registered:
    name: str
    check: Check
    endpoints: Collection[str]
    timeout_s: float


def check_log() -> None:
    """CheckFailed while log lines are lost."""
    if is_losing_lines():
        raise CheckFailed("log lines are lost: their reader takes none")


class HealthChecks:
    """The checks of one program, in the order in which they were added; `loop` must run."""

    def __init__(self, slis: SliMetrics) -> None:
        self.loop = Periodic(
            "health checks", self.look, interval_s=INTERVAL_S, initial_delay_s=FIRST_ROUND_S
        )
        self.latest: tuple[CheckResult, ...] = ()  # of the last round of `loop`
        self._slis = slis
        self._checks: list[_Registered] = []
        self._outages = OnceLog(log)  # by check

    def add(
        self,
        name: str,
        check: Check,
        *,
        endpoints: Collection[str] = ENDPOINTS,
        timeout_s: float = CHECK_TIMEOUT_S,
    ) -> None:
        """Add a check to these endpoints; it raises CheckFailed to fail."""
        self._checks.append(_Registered(name, check, tuple(endpoints), timeout_s))

    async def look(self) -> None:
        """Run every check once, and count its result for each of its endpoints."""
        results = await _run(self._checks)
        for check, result in zip(self._checks, results, strict=True):
            self._note(result, check.endpoints)
        self.latest = tuple(results)

    async def run(self, endpoint: str, exclude: Collection[str] = ()) -> list[CheckResult]:
        """Run all checks of an endpoint that are not excluded, and count the results."""
        results = await _run(self._of(endpoint), exclude)
        for result in results:
            if not result.excluded:
                self._note(result, (endpoint,))
        return results

    async def run_one(self, endpoint: str, name: str) -> CheckResult | None:
        """Run one check without counting it; None when the endpoint has none of that name."""
        for check in self._of(endpoint):
            if check.name == name:
                started = _start(check)
                return started if isinstance(started, CheckResult) else await started
        return None

    def handler(self, endpoint: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        """The handler of `/<endpoint>` and, with a path variable `check`, of single checks."""

        async def handle(request: web.Request) -> web.Response:
            name = request.match_info.get("check")
            if name is not None:
                return await self._render_check(endpoint, name)
            excluded = request.query.getall("exclude", [])
            results = await self.run(endpoint, excluded)
            known = [check.name for check in self._of(endpoint)]
            unknown = [name for name in dict.fromkeys(excluded) if name not in known]
            return render_results(
                endpoint, results, unknown=unknown, verbose="verbose" in request.query
            )

        return handle

    def handlers(self) -> list[web.RouteDef]:
        """Routes of the endpoints and of their single checks."""
        return [
            web.get(f"/{endpoint}{check}", self.handler(endpoint))
            for endpoint in ENDPOINTS
            for check in ("", "/{check:.+}")
        ]

    async def _render_check(self, endpoint: str, name: str) -> web.Response:
        result = await self.run_one(endpoint, name)
        if result is None:
            return render_text("404 page not found\n", status=404)
        if result.ok:
            return render_text("ok")
        return render_text(f"internal server error: {result.message}\n", status=500)

    def _of(self, endpoint: str) -> list[_Registered]:
        return [check for check in self._checks if endpoint in check.endpoints]

    def _note(self, result: CheckResult, endpoints: Collection[str]) -> None:
        for endpoint in endpoints:
            self._slis.record(result.name, endpoint, result.ok)
        name = result.name
        if result.ok:
            self._outages.recovered("the health check %s passes again", name, subject=name)
            return
        cause = _NUMBER.sub("", result.message)  # a growing duration is not a new cause
        text = "the health check %s fails: %s"
        self._outages.failed(text, name, result.message, subject=name, cause=cause)


async def _run(checks: Sequence[_Registered], exclude: Collection[str] = ()) -> list[CheckResult]:
    """The results of all checks, run at once, in their order."""
    started = [
        CheckResult(check.name, True, excluded=True) if check.name in exclude else _start(check)
        for check in checks
    ]
    pending = [item for item in started if not isinstance(item, CheckResult)]
    awaited = iter(await asyncio.gather(*pending) if pending else ())
    return [item if isinstance(item, CheckResult) else next(awaited) for item in started]


def _start(check: _Registered) -> CheckResult | Awaitable[CheckResult]:
    """The result, which most checks have at once, or an awaitable of it."""
    try:
        pending = check.check()
    except Exception as error:
        return _failure(check, error)
    return CheckResult(check.name, True) if pending is None else _wait(check, pending)


async def _wait(check: _Registered, pending: Awaitable[None]) -> CheckResult:
    try:
        async with asyncio.timeout(check.timeout_s):
            await pending
    except TimeoutError:
        return CheckResult(check.name, False, f"no result within {check.timeout_s:g} s")
    except Exception as error:
        return _failure(check, error)
    return CheckResult(check.name, True)


def _failure(check: _Registered, error: Exception) -> CheckResult:
    if isinstance(error, CheckFailed):
        return CheckResult(check.name, False, str(error))
    log.error("the health check %s itself failed", check.name, exc_info=error)
    return CheckResult(check.name, False, f"{type(error).__name__}: {error}")


def render_results(
    endpoint: str, results: Sequence[CheckResult], *, unknown: Sequence[str], verbose: bool
) -> web.Response:
    """The response of an aggregate endpoint; `unknown` are exclusions that match no check."""
    failed = any(not result.ok for result in results)
    if not failed and not verbose:
        return render_text("ok")
    lines = [_line(result) for result in results]
    if unknown:
        quoted = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {quoted}\n")
    lines.append(f"{endpoint} check {'failed' if failed else 'passed'}\n")
    return render_text("".join(lines), status=500 if failed else 200)


def _line(result: CheckResult) -> str:
    if result.excluded:
        return f"[+]{result.name} excluded: ok\n"
    return f"[+]{result.name} ok\n" if result.ok else f"[-]{result.name} failed: reason withheld\n"
