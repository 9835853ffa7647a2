"""The whole controller manager against a real API server in this process, with real heartbeats.

Times are shortened by flags; nothing else differs from production.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from nodeagent.heartbeat import LeaseLoop
from nodeagent.node.rules.facts import NodeFacts
from nodeagent.node.status_loop import StatusLoop
from orch.client.kubeconfig import ClientConfig, write_kubeconfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport
from orch.component.process import clock, loops
from orch.component.process.daemon import Stop
from orch.lifecycle import main, options
from orch.lifecycle.decide.records import Settings
from orch.wire.errors import ApiError
from orch.wire.records.configuration import Lease
from orch.wire.records.core import Event, Node
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Container, Pod, PodSpec
from tests.fakes import node as facts
from tests.orch.component.diagnostics.test_zpages_of_programs import FRAMEWORK
from tests.orch.server.harness import Api, Pki, make_pki

pytestmark = pytest.mark.slow

FAST = (
    "--node-monitor-period=200ms",
    "--node-monitor-grace-period=2s",
    "--node-startup-grace-period=2s",
    "--secure-port=0",
)


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"), clock.utc_now())


class World:
    """A server, one controller, and agents' heartbeats that can be stopped one by one."""

    def __init__(self, api: Api, pki: Pki, folder: Path) -> None:
        self.api = api
        self.pki = pki
        self.folder = folder
        self.admin = self.client("admin")
        self.stop = Stop()
        self.controller: asyncio.Task[None] | None = None
        self.agents: dict[str, list[asyncio.Task[None]]] = {}
        self.clients = [self.admin]

    def config(self, user: str) -> ClientConfig:
        pair = self.pki.users[user]
        return ClientConfig(
            server=f"https://127.0.0.1:{self.api.port}",
            ca_file=self.pki.ca_file,
            cert_file=pair.cert_file,
            key_file=pair.key_file,
        )

    def client(self, user: str) -> ApiClient:
        return ApiClient(Transport(self.config(user)))

    async def start_controller(self, *flags: str) -> int:
        kubeconfig, port_file = self.folder / "kubeconfig", self.folder / "port"
        port_file.unlink(missing_ok=True)
        write_kubeconfig(str(kubeconfig), self.config("controller"))
        arguments = [f"--kubeconfig={kubeconfig}", f"--port-file={port_file}", *FAST, *flags]
        self.stop = Stop()
        parsed = options.parse(arguments)
        running = main.run(parsed, main.read_files(parsed), self.stop)
        self.controller = loops.spawn(running, name="controller")
        await until(port_file.exists)
        return int(port_file.read_text())

    async def stop_controller(self) -> None:
        self.stop.set("test")
        if self.controller:
            await self.controller
            self.controller = None

    def start_agent(self, name: str, user: str = "") -> None:
        """The loops of a node's agent; `user` is whose identity it has, else its own."""
        status_client, lease_client = self.client(user or name), self.client(user or name)
        self.clients += [status_client, lease_client]
        loop_time = asyncio.get_running_loop().time

        async def collect() -> NodeFacts:
            runtime = facts.runtime(last_good_s=loop_time())
            return replace(facts.facts(runtime=runtime), time_s=loop_time())

        status = StatusLoop(status_client, facts.settings(node_name=name), collect)
        lease = LeaseLoop(lease_client, name, duration_s=1)
        self.agents[name] = [
            loops.spawn(coro, name=f"{name} {what}")
            for what, coro in (
                ("status", status.run()),
                ("watch", status.watch()),
                ("lease", lease.run()),
            )
        ]

    async def silence(self, name: str) -> None:
        await loops.cancel(*self.agents.pop(name))

    async def ready(self, name: str) -> str:
        try:
            found = await self.admin.get(Node, name)
        except ApiError:
            return ""
        return next((c.status for c in found.status.conditions or () if c.type == "Ready"), "")

    async def lease(self, name: str) -> Lease | None:
        try:
            return await self.admin.get(Lease, name, "orch-node-lease")
        except ApiError:
            return None

    async def taints(self, name: str) -> set[tuple[str, str]]:
        found = await self.admin.get(Node, name)
        return {(t.key.rpartition("/")[2], t.effect) for t in found.spec.taints or ()}

    async def restart_api(self, meanwhile: Callable[[], object]) -> None:
        """At the same address."""
        await self.api.stop()
        await asyncio.to_thread(meanwhile)
        self.api = await Api.start(self.pki, self.folder / "data", port=self.api.port)

    async def close(self) -> None:
        await self.stop_controller()
        for name in list(self.agents):
            await self.silence(name)
        for client in self.clients:
            await client.transport.close()


async def is_reported(world: World, reason: str) -> bool:
    """Whether an event gives this reason; events are posted behind what they report."""
    return reason in {event.reason for event in (await world.admin.list(Event)).items}


async def until(check: Callable[[], object], *, within_s: float = 15.0) -> None:
    """Poll, with a limit: what is waited for happens in other tasks of this loop."""
    async with asyncio.timeout(within_s):
        while True:
            found = check()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.02)


@pytest.fixture
async def world(
    identities: Pki, tmp_path: Path, free_port: Callable[[], int]
) -> AsyncIterator[World]:
    # Of the kernel's own ports one may be somebody's by the time the server starts again.
    api = await Api.start(identities, tmp_path / "data", port=free_port())
    world = World(api, identities, tmp_path)
    yield world
    await world.close()
    await world.api.stop()


async def is_ready(world: World, name: str, status: str) -> bool:
    return await world.ready(name) == status


async def test_agents_register_renew_and_stay_ready(world: World) -> None:
    await world.start_controller()
    for name in ("n1", "n2"):
        world.start_agent(name)
        await until(lambda name=name: is_ready(world, name, "True"))
    seen: set[str | None] = set()

    async def renewed_often() -> bool:
        if lease := await world.lease("n1"):
            assert [owner.name for owner in lease.metadata.ownerReferences or ()] == ["n1"]
            seen.add(lease.spec.renewTime)
        return len(seen) > 10  # more than the grace of two seconds lasts

    await until(renewed_often)
    assert [await world.ready(name) for name in ("n1", "n2")] == ["True", "True"]


async def test_a_silent_agent_is_unknown_and_tainted_and_recovers_by_itself(world: World) -> None:
    await world.start_controller()
    for name in ("n1", "n2"):
        world.start_agent(name)
        await until(lambda name=name: is_ready(world, name, "True"))
    await world.silence("n1")
    await until(lambda: is_ready(world, "n1", "Unknown"))

    async def both_taints() -> bool:
        return await world.taints("n1") == {
            ("unreachable", "NoSchedule"),
            ("unreachable", "NoExecute"),
        }

    await until(both_taints)
    assert await world.ready("n2") == "True"
    world.start_agent("n1")
    await until(lambda: is_ready(world, "n1", "True"))

    async def no_taints() -> bool:
        return await world.taints("n1") == set()

    await until(no_taints)
    await until(lambda: is_reported(world, "NodeNotReady"))


async def test_an_older_store_is_restored_and_silent_nodes_are_noticed_as_before(
    world: World,
) -> None:
    await world.start_controller()
    world.start_agent("n1")
    await until(lambda: is_ready(world, "n1", "True"))
    store, backup = world.folder / "data" / "state.db", world.folder / "backup"

    await world.restart_api(lambda: shutil.copyfile(store, backup))
    await until(lambda: is_ready(world, "n1", "True"))
    for number in range(500):  # revisions that the restored store takes long to reach
        await world.admin.patch(Node, "n1", {"metadata": {"labels": {"n": str(number)}}})
    await world.admin.create(Node(metadata=ObjectMeta(name="lost")))
    await asyncio.sleep(0.5)  # a little of it is seen

    def restore() -> None:
        Path(f"{store}-wal").unlink(missing_ok=True)
        shutil.copyfile(backup, store)

    await world.restart_api(restore)
    await world.silence("n1")
    await until(lambda: is_ready(world, "n1", "Unknown"), within_s=40)


async def test_a_running_agent_puts_a_wrong_verdict_right_at_once(world: World) -> None:
    world.start_agent("n1")
    await until(lambda: is_ready(world, "n1", "True"))
    judged = await world.admin.get(Node, "n1")
    conditions = [
        c.model_copy(update={"status": "Unknown"}) for c in judged.status.conditions or ()
    ]
    patch = {"status": {"conditions": [c.to_wire() for c in conditions]}}
    await world.admin.patch(Node, "n1", patch, subresource="status")
    await until(lambda: is_ready(world, "n1", "True"), within_s=5)


async def test_a_deleted_node_and_a_deleted_lease_come_back(world: World) -> None:
    world.start_agent("n1")
    await until(lambda: is_ready(world, "n1", "True"))
    await until(lambda: world.lease("n1"))
    await world.admin.delete(Lease, "n1", "orch-node-lease")
    await world.admin.delete(Node, "n1")
    await until(lambda: is_ready(world, "n1", "True"), within_s=5)
    await until(lambda: world.lease("n1"), within_s=5)


async def test_what_a_gone_node_leaves_behind_is_removed(world: World) -> None:
    world.start_agent("n2")
    await until(lambda: is_ready(world, "n2", "True"))
    meta = ObjectMeta(name="p", namespace="default")
    spec = PodSpec(nodeName="n1", containers=[Container(name="c", image="busybox:1")])
    await world.admin.create(Pod(metadata=meta, spec=spec))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("orch.lifecycle.options.Settings", _hasty)
        await world.start_controller()

    async def gone() -> bool:
        return not (await world.admin.list(Pod)).items

    await until(gone)
    assert await world.ready("n2") == "True"


def _hasty(**values: object) -> Settings:
    return Settings(**values, orphan_quarantine_s=0.5)  # type: ignore[arg-type]


async def test_a_second_controller_takes_over_when_the_first_stops(world: World) -> None:
    await world.start_controller()
    claim: Lease | None = None

    async def claimed() -> bool:
        nonlocal claim
        try:
            claim = await world.admin.get(Lease, "orch-controller-manager", "orch-system")
        except ApiError:
            return False
        return bool(claim.spec.holderIdentity)

    await until(claimed)
    first = claim.spec.holderIdentity if claim else ""
    await world.stop_controller()
    assert not await claimed(), "an ordered stop gives the claim up"
    await world.start_controller()
    await until(claimed)
    assert claim and claim.spec.holderIdentity != first


async def test_the_page_says_who_leads(world: World) -> None:
    ca_file = world.pki.ca_file
    port = await world.start_controller(f"--client-ca-file={ca_file}")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    monitor = world.pki.users["monitor"]
    context.load_cert_chain(monitor.cert_file, monitor.key_file)

    async def leads() -> bool:
        async with session.get(f"https://127.0.0.1:{port}/metrics") as answer:
            shown = (await answer.text()).splitlines()
        return 'leader_election_master_status{name="orch-controller-manager"} 1.0' in shown

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        await until(leads)


async def test_health_and_metrics_are_served_over_tls(world: World) -> None:
    ca_file = world.pki.ca_file
    port = await world.start_controller("--leader-elect=false", f"--client-ca-file={ca_file}")
    world.start_agent("n1")
    await until(lambda: is_ready(world, "n1", "True"))
    untrusting = ssl.create_default_context()
    untrusting.check_hostname = False
    untrusting.verify_mode = ssl.CERT_NONE
    monitor = world.pki.users["monitor"]
    untrusting.load_cert_chain(monitor.cert_file, monitor.key_file)
    connector = aiohttp.TCPConnector(ssl=untrusting)
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}", connector=connector) as session:

        async def read(path: str) -> str:
            async with session.get(path) as answer:
                assert answer.status == 200, path
                return await answer.text()

        async def shows_its_health() -> bool:
            page = await read("/metrics/slis")
            return 'orch_healthcheck{name="node-monitor",type="healthz"} 1' in page

        await until(shows_its_health)  # though nobody asked
        informers = [f"/readyz/informer-{resource}" for resource in ("nodes", "pods", "leases")]
        for path in ("/healthz", "/livez", "/readyz", "/readyz/node-monitor", *informers):
            assert await read(path) == "ok"

        async def shows_the_node() -> bool:
            return 'node_collector_zone_size{zone=""} 1.0' in await read("/metrics")

        await until(shows_the_node)
        page = await read("/metrics")
        assert "orch_controller_leader 1.0" in page
        assert "orch_events_dropped_total 0.0" in page
        assert f'host="127.0.0.1:{world.api.port}",method="GET"}}' in page
        assert "\nleader_election_master_status{" not in page  # without an election
        assert 'orch_informer_silence_seconds{resource="leases"} ' in page
        assert 'orch_certificate_expiration_timestamp_seconds{use="client"} ' in page
        assert [name for name in FRAMEWORK if f"\n{name}" not in page] == []


@pytest.mark.may_block
async def test_a_new_client_ca_counts_without_a_restart_and_its_groups_decide(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main.component_tls, "INTERVAL_S", 0.05)
    other = make_pki(tmp_path / "other", clock.utc_now())
    ca_file = tmp_path / "client-ca.crt"
    shutil.copyfile(world.pki.ca_file, ca_file)
    port = await world.start_controller(f"--client-ca-file={ca_file}")

    async def status(pki: Pki, user: str) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(pki.users[user].cert_file, pki.users[user].key_file)
        async with aiohttp.ClientSession() as session:
            try:
                url = f"https://127.0.0.1:{port}/metrics"
                async with session.get(url, ssl=context) as answer:
                    return answer.status
            except aiohttp.ClientConnectionError:
                return 0

    expected = {"admin": 200, "monitor": 200, "stranger": 403, "n1": 403}
    assert {user: await status(world.pki, user) for user in expected} == expected
    assert await status(other, "admin") == 0
    shutil.copyfile(other.ca_file, ca_file)

    async def known() -> bool:
        return await status(other, "monitor") == 200

    await until(known)
    assert await status(world.pki, "admin") == 0
