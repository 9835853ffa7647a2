"""Bodies are the golden texts of the agent reference (sections 5 and 6.1)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient

from orch.component.diagnostics import health
from orch.component.diagnostics.health import CheckFailed, CheckResult, HealthChecks, SliMetrics
from orch.component.process import loops
from orch.component.process.log import QueueHandler

MakeClient = Callable[[web.Application], Awaitable[TestClient[web.Request, web.Application]]]
Get = Callable[[str], Awaitable[tuple[int, str]]]


def fine() -> None:
    pass


async def also_fine() -> None:
    await asyncio.sleep(0)


def bad() -> None:
    raise CheckFailed("the secret reason")


@pytest.fixture
def slis() -> SliMetrics:
    return SliMetrics(process_start_s=0)


@pytest.fixture
def checks(slis: SliMetrics) -> HealthChecks:
    return HealthChecks(slis)


@pytest.fixture
async def get(checks: HealthChecks, aiohttp_client: MakeClient) -> Get:
    app = web.Application()
    app.add_routes(checks.handlers())
    client = await aiohttp_client(app)

    async def get(path: str) -> tuple[int, str]:
        response = await client.get(path)
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        return response.status, await response.text()

    return get


async def test_healthy_is_ok_without_a_newline(checks: HealthChecks, get: Get) -> None:
    checks.add("ping", fine)
    checks.add("log", also_fine)
    assert await get("/healthz") == (200, "ok")


async def test_no_checks_at_all_is_healthy(get: Get) -> None:
    assert await get("/readyz") == (200, "ok")


async def test_verbose_lists_the_checks_in_their_order(checks: HealthChecks, get: Get) -> None:
    checks.add("ping", fine)
    checks.add("log", also_fine)
    expected = "[+]ping ok\n[+]log ok\nhealthz check passed\n"
    assert await get("/healthz?verbose") == (200, expected)
    assert await get("/healthz?verbose=false") == (200, expected)  # presence alone counts


async def test_a_failure_is_always_verbose_and_never_has_its_reason(
    checks: HealthChecks, get: Get, caplog: pytest.LogCaptureFixture
) -> None:
    checks.add("ping", fine)
    checks.add("bad", bad)
    expected = "[+]ping ok\n[-]bad failed: reason withheld\nhealthz check failed\n"
    assert await get("/healthz") == (500, expected)
    assert caplog.messages == ["the health check bad fails: the secret reason"]


async def test_the_texts_name_their_endpoint(checks: HealthChecks, get: Get) -> None:
    checks.add("bad", bad, endpoints=("livez",))
    assert await get("/livez") == (500, "[-]bad failed: reason withheld\nlivez check failed\n")
    assert await get("/readyz?verbose") == (200, "readyz check passed\n")


async def test_excluded_checks_are_not_run(checks: HealthChecks, get: Get) -> None:
    checks.add("ping", fine)
    checks.add("bad", bad)
    assert await get("/healthz?exclude=bad") == (200, "ok")
    assert await get("/healthz?exclude=bad&exclude=ping&verbose") == (
        200,
        "[+]ping excluded: ok\n[+]bad excluded: ok\nhealthz check passed\n",
    )


async def test_an_unknown_exclusion_is_warned_of(checks: HealthChecks, get: Get) -> None:
    checks.add("ping", fine)
    assert await get("/healthz?exclude=x&exclude=y&verbose") == (
        200,
        "[+]ping ok\n"
        'warn: some health checks cannot be excluded: no matches for "x", "y"\n'
        "healthz check passed\n",
    )
    assert await get("/healthz?exclude=x") == (200, "ok")


async def test_a_single_check_shows_its_reason(checks: HealthChecks, get: Get) -> None:
    checks.add("ping", fine)
    checks.add("poststarthook/bootstrap", bad)
    assert await get("/healthz/ping") == (200, "ok")
    assert await get("/healthz/poststarthook/bootstrap") == (
        500,
        "internal server error: the secret reason\n",
    )
    assert await get("/healthz/nope") == (404, "404 page not found\n")


async def test_a_check_is_only_found_under_its_endpoints(checks: HealthChecks, get: Get) -> None:
    checks.add("shutdown", fine, endpoints=("readyz",))
    assert (await get("/readyz/shutdown"))[0] == 200
    assert (await get("/healthz/shutdown"))[0] == 404


async def test_only_requests_of_all_checks_are_counted_without_the_excluded(
    checks: HealthChecks, slis: SliMetrics, get: Get
) -> None:
    checks.add("ping", fine)
    checks.add("bad", bad)
    before = slis.render()
    await get("/healthz/ping")
    await get("/healthz/bad")
    assert slis.render() == before
    await get("/healthz")
    await get("/readyz?exclude=bad")
    page = slis.render().decode()
    assert 'orch_healthchecks_total{name="ping",status="success",type="healthz"} 1\n' in page
    assert 'orch_healthchecks_total{name="bad",status="error",type="healthz"} 1\n' in page
    assert 'orch_healthchecks_total{name="ping",status="success",type="readyz"} 1\n' in page
    assert 'name="bad",type="readyz"' not in page


@pytest.mark.looptime
async def test_a_check_that_hangs_fails_alone_and_at_its_deadline(checks: HealthChecks) -> None:
    async def hang() -> None:
        await asyncio.sleep(1000)

    checks.add("one", hang)
    checks.add("two", hang, timeout_s=2)
    checks.add("ping", fine)
    began_s = asyncio.get_running_loop().time()
    assert await checks.run("healthz") == [
        CheckResult("one", False, "no result within 5 s"),
        CheckResult("two", False, "no result within 2 s"),
        CheckResult("ping", True),
    ]
    assert asyncio.get_running_loop().time() - began_s == 5


async def test_a_check_that_breaks_fails_and_is_logged_with_its_traceback(
    checks: HealthChecks, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ZeroDivisionError("oops")

    checks.add("broken", broken)
    assert await checks.run("healthz") == [CheckResult("broken", False, "ZeroDivisionError: oops")]
    assert caplog.records[0].exc_info is not None


async def test_the_log_has_changes_not_every_result(
    checks: HealthChecks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    reason = "first"

    def check() -> None:
        if reason:
            raise CheckFailed(reason)

    checks.add("x", check)
    for told in ("first", "first", "silent for 9 s", "silent for 14 s", "", ""):
        reason = told
        await checks.run("healthz")
    assert [text.partition(" (after ")[0] for text in caplog.messages] == [
        "the health check x fails: first",
        "the health check x fails: silent for 9 s",
        "the health check x passes again",
    ]


@pytest.mark.looptime
async def test_checks_run_and_are_counted_though_nobody_asks(
    checks: HealthChecks, slis: SliMetrics, caplog: pytest.LogCaptureFixture
) -> None:
    checks.add("ping", fine)
    checks.add("bad", bad, endpoints=("readyz",))
    running = loops.spawn(checks.loop.run(), name="health checks")
    await asyncio.sleep(health.FIRST_ROUND_S + 1.5 * health.INTERVAL_S)
    await loops.cancel(running)
    page = slis.render().decode()
    for endpoint in health.ENDPOINTS:
        assert f'orch_healthcheck{{name="ping",type="{endpoint}"}} 1\n' in page
        assert f'{{name="ping",status="success",type="{endpoint}"}} 2\n' in page
    assert 'orch_healthchecks_total{name="bad",status="error",type="readyz"} 2\n' in page
    assert 'name="bad",type="healthz"' not in page
    assert caplog.messages == ["the health check bad fails: the secret reason"]


async def test_the_check_of_the_log_fails_while_lines_are_lost(checks: HealthChecks) -> None:
    checks.add("log", health.check_log)
    root = logging.getLogger()
    before = root.handlers[:], root.level
    with Path("/dev/full").open("w") as full:
        handler = QueueHandler(full)
        try:
            root.addHandler(handler)
            assert await checks.run("healthz") == [CheckResult("log", True)]
            handler.handle(root.makeRecord("x", logging.ERROR, __file__, 0, "lost", (), None))
            (failed,) = await checks.run("healthz")
        finally:
            root.removeHandler(handler)
    assert (failed.ok, failed.message) == (False, "log lines are lost: their reader takes none")
    assert await checks.run("healthz") == [CheckResult("log", True)]
    assert (root.handlers, root.level) == before
