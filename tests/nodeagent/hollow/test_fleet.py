"""Hollow nodes are agents to a real API server: registered, ready, beating, faulty on demand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
import pytest

from nodeagent.hollow.fleet import Fleet, Lateness
from nodeagent.hollow.main import control
from orch.client.kubeconfig import ClientConfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.http.httpd import HttpServer
from orch.component.process import clock, loops
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Node
from tests.orch.server.harness import Api, make_pki

COUNT = 12


class Hollow:
    """A server, a fleet on it, and what the server has stored."""

    def __init__(self, config: ClientConfig) -> None:
        self.fleet = Fleet(config, COUNT, lease_duration_s=4000)  # no renewal falls due here
        self.admin = ApiClient(Transport(config))
        self.tasks = [
            loops.spawn(coro, name="fleet")
            for coro in (self.fleet.ramp(0.1), self.fleet.measure(), self.fleet.watch())
        ]

    async def ready(self) -> int:
        nodes = (await self.admin.list(Node)).items
        conditions = [c for node in nodes for c in node.status.conditions or ()]
        return sum(c.type == "Ready" and c.status == "True" for c in conditions)

    async def leases(self) -> dict[str, str | None]:
        found = (await self.admin.list(Lease, "orch-node-lease")).items
        return {lease.metadata.name: lease.spec.renewTime for lease in found}

    async def close(self) -> None:
        await loops.cancel(*self.tasks)
        await self.fleet.close()
        await self.admin.transport.close()


@pytest.fixture
async def hollow(tmp_path: Path) -> AsyncIterator[Hollow]:
    pki = make_pki(tmp_path, clock.utc_now())
    api = await Api.start(pki, tmp_path / "data")
    pair = pki.users["admin"]
    hollow = Hollow(
        ClientConfig(
            server=f"https://127.0.0.1:{api.port}",
            ca_file=pki.ca_file,
            cert_file=pair.cert_file,
            key_file=pair.key_file,
        )
    )
    yield hollow
    await hollow.close()
    await api.stop()


async def until(check: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while True:
            found = check()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.02)


async def all_are_up(hollow: Hollow) -> bool:
    return await hollow.ready() == COUNT and len(await hollow.leases()) == COUNT


async def test_every_node_is_registered_ready_and_has_a_lease(hollow: Hollow) -> None:
    await until(lambda: all_are_up(hollow))
    await until(lambda: hollow.fleet.figures().shown == {"True": COUNT})
    await until(lambda: hollow.fleet.figures().renewals == COUNT)
    figures = hollow.fleet.figures()
    assert (figures.nodes, figures.beating) == (COUNT, COUNT)
    assert figures.late_max_s is not None
    node = await hollow.admin.get(Node, "hollow-00003")
    assert [a.address for a in node.status.addresses or ()] == ["198.18.0.4", "hollow-00003"]


@pytest.mark.slow
async def test_an_ended_watch_resumes_and_lists_nothing_again(hollow: Hollow) -> None:
    await until(lambda: all_are_up(hollow))
    fleet = Fleet(hollow.admin.transport.config, 1)
    api, asked = fleet.watching, []
    real_list, real_watch = api.list, api.watch

    def listing(*words: Any) -> Any:
        asked.append("list")
        return real_list(*words)

    def watching(*words: Any, **options: Any) -> Any:
        asked.append("watch")
        return real_watch(*words, timeout_s=1, **options)

    with patch.object(api, "list", listing), patch.object(api, "watch", watching):
        task = loops.spawn(fleet.watch(), name="watch")
        await until(lambda: asked.count("watch") == 3)
    await loops.cancel(task)
    await fleet.close()
    assert asked == ["list", "watch", "watch", "watch"]


def test_lateness_is_measured_in_milliseconds() -> None:
    lateness = Lateness()
    assert lateness.quantile(0.99) is None
    for late_ms in range(100):
        lateness.add(late_ms / 1000 + 0.0004)
    assert [lateness.quantile(share) for share in (0.5, 0.99, 1.0)] == [0.049, 0.098, 0.099]
    lateness.clear()
    assert lateness.quantile(0.5) is None


async def test_healed_nodes_beat_at_once(hollow: Hollow) -> None:
    await until(lambda: all_are_up(hollow))
    names = hollow.fleet.choose(3)
    await hollow.fleet.inject("silent", names)
    before = await hollow.leases()
    hollow.fleet.heal()

    async def all_renewed() -> bool:
        after = await hollow.leases()
        return all(after[name] != before[name] for name in names)

    await until(all_renewed)
    assert {n: t for n, t in (await hollow.leases()).items() if n not in names} == {
        n: t for n, t in before.items() if n not in names
    }, "the others' turn has not come yet"


async def test_a_fault_that_does_not_exist_is_named(hollow: Hollow) -> None:
    with pytest.raises(ValueError, match="no fault 'odd'; use one of silent, slow, flapping"):
        await hollow.fleet.inject("odd", [])


async def test_figures_and_faults_are_served_over_http(hollow: Hollow) -> None:
    await until(lambda: all_are_up(hollow))
    http = HttpServer(control(hollow.fleet), host="127.0.0.1", port=0, name="control")
    port = await http.start()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/figures") as answer:
            assert (await answer.json())["nodes"] == COUNT
        async with session.post("/faults?kind=silent&count=2") as answer:
            names = await answer.json()
        assert len(names) == 2 and all(hollow.fleet.nodes[n].faults.silent for n in names)
        async with session.post("/faults?kind=odd") as answer:
            assert answer.status == 400 and "no fault 'odd'" in await answer.text()
        async with session.post("/heal") as answer:
            assert await answer.text() == "ok"
        assert not any(node.faults.silent for node in hollow.fleet.nodes.values())

        async def all_are_shown() -> bool:
            async with session.get("/nodes") as answer:
                return len(await answer.json()) == COUNT

        await until(all_are_shown)  # the fleet's watch follows the server
    await http.stop()
