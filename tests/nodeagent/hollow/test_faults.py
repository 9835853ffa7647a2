"""Each fault of a hollow node as the control plane sees it: real API server and controller.

Leases last a second and the controller's grace is short; nothing else differs from production.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from nodeagent.hollow import node as hollow
from nodeagent.hollow.fleet import Fleet
from orch.component.process import clock, loops
from orch.wire import times
from tests.orch.lifecycle.test_main import World, is_ready, until
from tests.orch.server.harness import Api, make_pki

pytestmark = [pytest.mark.slow, pytest.mark.seconds(25)]

GRACE_S = 5  # longer than a slow node needs for a renewal
ONE, OTHERS = "hollow-00000", ("hollow-00001", "hollow-00002")


class Hollow(World):
    """Three hollow nodes, registered and judged."""

    fleet: Fleet

    async def start(self) -> None:
        self.fleet = Fleet(self.config("admin"), 3, lease_duration_s=1)
        running = (self.fleet.ramp(0.1), self.fleet.measure(), self.fleet.watch())
        self.tasks = [loops.spawn(coro, name="fleet") for coro in running]
        await self.start_controller(f"--node-monitor-grace-period={GRACE_S}s")
        for name in (ONE, *OTHERS):
            await until(lambda name=name: is_ready(self, name, "True"))
            await until(lambda name=name: self.lease(name))

    async def renewed(self, name: str) -> str:
        lease = await self.lease(name)
        assert lease and lease.spec.renewTime
        return lease.spec.renewTime

    async def others_are_well(self) -> bool:
        return [await self.ready(name) for name in OTHERS] == ["True", "True"]

    async def close(self) -> None:
        await loops.cancel(*self.tasks)
        await self.fleet.close()
        await super().close()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Hollow]:
    pki = make_pki(tmp_path / "pki", clock.utc_now())
    api = await Api.start(pki, tmp_path / "data")
    world = Hollow(api, pki, tmp_path)
    await world.start()
    yield world
    await world.close()
    await api.stop()


async def test_a_silent_node_is_judged_and_its_first_heartbeat_ends_that(world: Hollow) -> None:
    await world.fleet.inject("silent", [ONE])
    await until(lambda: is_ready(world, ONE, "Unknown"))
    silent_since = await world.renewed(ONE)  # a renewal under way has long arrived
    await until(lambda: tainted(world, {("unreachable", "NoSchedule")}))
    assert await world.renewed(ONE) == silent_since
    assert await world.others_are_well()
    world.fleet.heal()
    await until(lambda: is_ready(world, ONE, "True"))

    async def untainted() -> bool:
        return not await world.taints(ONE)

    await until(untainted)


async def test_a_slow_node_renews_late_and_is_not_judged(world: Hollow) -> None:
    await world.fleet.inject("slow", [ONE])
    loop_of = {name: node.lease for name, node in world.fleet.nodes.items()}
    began = {name: lease.renewals for name, lease in loop_of.items()}
    stored = await world.renewed(ONE)
    await until(lambda: loop_of[ONE].late_s > 2.0 and loop_of[ONE].renewals > began[ONE] + 1)
    assert await world.renewed(ONE) > stored
    slow, quick = (loop_of[name].renewals - began[name] for name in (ONE, OTHERS[0]))
    assert quick > 2 * slow, "the others share its connections, not its trouble"
    assert await is_ready(world, ONE, "True") and await world.others_are_well()
    world.fleet.heal()
    await until(lambda: loop_of[ONE].late_s < 1.0)


async def test_a_flapping_node_is_tainted_to_and_fro(
    world: Hollow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hollow, "FLAP_S", 3.0)
    world.fleet.nodes[ONE].status.retime(update_s=0.1, report_s=300)
    world.fleet.nodes[ONE].status.wake()
    await world.fleet.inject("flapping", [ONE])
    for _ in range(2):
        await until(lambda: is_ready(world, ONE, "False"))
        await until(lambda: tainted(world, {("not-ready", "NoSchedule")}))
        await until(lambda: is_ready(world, ONE, "True"))
        await until(lambda: tainted(world, set()))
    assert await world.others_are_well()
    world.fleet.heal()


async def tainted(world: Hollow, exactly: set[tuple[str, str]]) -> bool:
    """NoExecute ones come at the rate of the zone: not asked for here."""
    return {t for t in await world.taints(ONE) if t[1] == "NoSchedule"} == exactly


async def test_a_node_with_a_wrong_clock_shows_it_and_is_not_judged(world: Hollow) -> None:
    await world.fleet.inject("skewed", [ONE])
    hour = timedelta(hours=1)

    async def ahead_by(wanted: timedelta) -> bool:
        off = times.parse_time(await world.renewed(ONE)) - clock.utc_now()
        return abs(off - wanted) < timedelta(minutes=1)

    await until(lambda: ahead_by(hour))
    await asyncio.sleep(GRACE_S + 1)  # what must not happen would have happened by then
    assert await ahead_by(hour)
    assert await is_ready(world, ONE, "True") and await world.others_are_well()
    world.fleet.heal()
    await until(lambda: ahead_by(timedelta()))
    assert await is_ready(world, ONE, "True")
