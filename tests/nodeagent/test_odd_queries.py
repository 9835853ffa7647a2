"""Query parameters that no client means: each is answered, none is the server's own failure."""

from __future__ import annotations

import logging
from urllib.parse import quote

import pytest

from tests.fakes.agent import Agent

pytestmark = pytest.mark.slow

LOGS = "/containerLogs/default/web/app"
PARAMETERS = [
    *(
        ("GET", LOGS, name)
        for name in (
            "tailLines", "tail", "sinceSeconds", "limitBytes", "sinceTime", "follow", "timestamps",
            "previous", "stream",
        )
    ),
    ("GET", "/stats/summary", "only_cpu_and_memory"),
    ("GET", "/healthz", "exclude"),
    ("GET", "/healthz", "verbose"),
    ("GET", "/statusz", "pretty"),
]  # fmt: skip
VALUES = [
    "9" * 20, "9" * 400, "9" * 4301, "-" + "9" * 4301, "1" + "0" * 18, str(2**63 - 1), str(2**63),
    str(-(2**63) - 1), "1e400", "0x10", "1_000", "\u0661", "NaN", "inf", "", " ", "\x00", "\r\n",
    "+1", "-1", "9999-12-31T23:59:59Z", "0000-00-00T00:00:00Z",
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "name"), PARAMETERS)
async def test_no_value_of_a_parameter_breaks_the_server(
    agent: Agent, method: str, path: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    for value in VALUES:
        answer = await agent.ask(method, f"{path}?{name}={quote(value, safe='')}")
        assert answer.status in (200, 400, 404, 406, 422), (value[:30], answer.text)
        assert not [one for one in caplog.records if one.exc_info], value[:30]


NO_TIMEOUTS = [value for value in VALUES if value not in ("", "+1", "1" + "0" * 18, str(2**63 - 1))]


async def test_a_timeout_that_is_not_a_number_creates_no_checkpoint(agent: Agent) -> None:
    for value in NO_TIMEOUTS:
        path = f"/checkpoint/shop/web/app?timeout={quote(value, safe='')}"
        answer = await agent.ask("POST", path)
        assert answer.status in (404, 500) if value == "-1" else answer.status == 404, value[:30]
        assert "timeout" in answer.text
    assert agent.runtime.called("checkpoint_container") == []
