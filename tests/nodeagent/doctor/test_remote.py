"""Asking the runtime and the API server's clock."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from nodeagent.doctor.checks import RuntimeFacts
from nodeagent.doctor.remote import clock_skew, query_runtime
from nodeagent.runtime.base import RuntimeCondition
from orch.client.kubeconfig import ClientConfig
from tests.fakes.cri_server import CriServer
from tests.fakes.runtime import FakeRuntime

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


async def test_a_runtime_reports_its_version_and_false_conditions(tmp_path: Path) -> None:
    fake = FakeRuntime()
    fake.runtime_conditions = [
        RuntimeCondition("RuntimeReady", True),
        RuntimeCondition("NetworkReady", False, "NoCNI", "no network plugin"),
    ]
    server = CriServer(fake, tmp_path / "cri.sock")
    await server.start()
    try:
        facts = await query_runtime(server.endpoint)
    finally:
        await server.stop()
    assert facts == RuntimeFacts(
        server.endpoint,
        True,
        "fake",
        "1.0.0",
        ("NetworkReady is false: NoCNI no network plugin",),
    )


@pytest.mark.may_block  # the end of grpc's last channel waits for its own thread
async def test_a_silent_socket_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "dead.sock").touch()
    facts = await query_runtime(f"unix://{tmp_path}/dead.sock")
    assert facts.socket_exists
    assert facts.error


def api(
    date: str | None, status: int = 200
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(_request: web.Request) -> web.StreamResponse:
        headers = {} if date is None else {"Date": date}
        return web.Response(status=status, headers=headers)

    return handle


async def ask(date: str | None, status: int = 200) -> tuple[float | None, str]:
    app = web.Application()
    app.router.add_get("/version", api(date, status))
    async with TestServer(app) as server:
        return await clock_skew(ClientConfig(str(server.make_url("")).rstrip("/")), lambda: NOON)


# how far the server's clock is from this host's → how far this host is ahead
SKEWS = [(0, 0.0), (-1, 0.0), (-60, 59.5), (60, -60.5)]


@pytest.mark.parametrize(("server_s", "ahead_s"), SKEWS)
async def test_the_skew_is_what_a_whole_second_cannot_explain(
    server_s: int, ahead_s: float
) -> None:
    date = format_datetime(NOON + timedelta(seconds=server_s), usegmt=True)
    assert await ask(date) == (ahead_s, "")


async def test_a_server_that_refuses_or_reports_no_time_is_an_error() -> None:
    refused = await ask(format_datetime(NOON, usegmt=True), 401)
    assert refused[0] is None
    assert "refuses these credentials (401)" in refused[1]
    assert "does not report the time" in (await ask("yesterday"))[1]


async def test_a_missing_server_is_an_error(free_port: Callable[[], int]) -> None:
    skew_s, error = await clock_skew(ClientConfig(f"http://127.0.0.1:{free_port()}"))
    assert skew_s is None
    assert "127.0.0.1" in error
