"""The agent's overview page: its contents, its readers, and its cost."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest

from nodeagent import server
from nodeagent.overview.overview import Overview
from nodeagent.stats.sampler import Sampler
from orch.wire.records.pods import PodStatus
from tests.fakes import pods
from tests.fakes.agent import (
    ADMIN,
    API_SERVER,
    MONITORING,
    NOBODY,
    OTHER_NODE,
    STRANGER,
    Agent,
    pressure_watch,
)


async def test_the_page_allows_itself_alone_and_nothing_to_run(agent: Agent) -> None:
    answer = await agent.ask("GET", "/overview")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    directives = answer.headers["Content-Security-Policy"].split("; ")
    assert directives[0] == "default-src 'none'"
    assert [d for d in directives if "'none'" not in d] == [directives[1]]
    assert re.fullmatch(r"style-src 'sha256-[\w+/=]{44}'", directives[1])
    assert "unsafe" not in answer.headers["Content-Security-Policy"]


async def test_it_shows_what_the_agent_knows(agent: Agent, sampler: Sampler) -> None:
    await sampler.step()
    await agent.services.health.look()
    text = (await agent.ask("GET", "/overview")).text
    for expected in ("<h1>n1</h1>", "of 2 cores", "Pods (1)", "0 archives", "ping ok"):
        assert expected in text
    assert "http-equiv" in text
    assert "http-equiv" not in (await agent.ask("GET", "/overview?refresh=0")).text


async def test_who_may_not_use_the_proxy_does_not_see_it(agent: Agent) -> None:
    for subject, status in (
        (NOBODY, 401), (STRANGER, 403), (OTHER_NODE, 403), (MONITORING, 403), (ADMIN, 200),
        (API_SERVER, 200),
    ):  # fmt: skip
        async with agent.session(subject) as ask:
            assert (await ask("GET", "/overview")).status == status, subject
            assert (await ask("POST", "/overview")).status in (401, 403, 405)


async def test_a_failing_store_leaves_the_rest_of_the_page(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agent.services.checkpoints

    def broken() -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(agent.services.checkpoints._pruner.index, "archives", broken)
    answer = await agent.ask("GET", "/overview")
    assert answer.status == 200
    assert "cannot list checkpoints: disk on fire" in answer.text
    assert "Pods (" in answer.text


async def test_a_pod_that_waits_is_not_well_and_says_why(agent: Agent) -> None:
    broken = pods.pod()
    waiting = {"name": "app", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    status = PodStatus.model_validate({"phase": "Pending", "containerStatuses": [waiting]})
    agent.services.registry.set_desired([broken])
    agent.services.registry.set_status(broken.metadata.uid or "", status)
    text = (await agent.ask("GET", "/overview")).text
    assert "ImagePullBackOff" in text
    assert '<small class="bad"> Pending, 0/1 ready' in text


async def test_many_viewers_cost_as_much_as_one(agent: Agent, sampler: Sampler) -> None:
    overview = agent.services.overview
    assert overview
    await asyncio.gather(*[agent.ask("GET", "/overview") for _ in range(5)])
    assert await overview.view() is await overview.view()
    assert sampler.readings == 1


async def test_it_is_gathered_anew_after_two_seconds_and_after_a_failure(
    agent: Agent, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    services, now_s = agent.services, [100.0]
    overview = Overview(
        agent.services.overview._history,  # type: ignore[union-attr]
        pressure_watch(sampler), services.registry, None, services.health,
        node_name="n1", cpus=2, now_s=lambda: now_s[0],
    )  # fmt: skip
    with monkeypatch.context() as broken:
        broken.setattr(overview, "_store", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await overview.view()
    first = await overview.view()
    now_s[0] += 1.9
    assert await overview.view() is first
    now_s[0] += 0.2
    assert await overview.view() is not first


async def test_there_is_no_page_where_it_is_off_or_debugging_is(unserved: Agent) -> None:
    services = unserved.services
    closed = services.config().model_copy(update={"enableDebuggingHandlers": False})
    for other in (replace(services, overview=None), replace(services, config=lambda: closed)):
        paths = {
            r.resource.canonical for r in server.secure_app(other).router.routes() if r.resource
        }
        assert "/overview" not in paths
    plain = server.read_only_app(services)
    assert "/overview" not in {r.resource.canonical for r in plain.router.routes() if r.resource}
