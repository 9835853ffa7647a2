"""A pod on a node that fell silent is evicted when its toleration has run out: real parts only.

API server, controller and three agents' own loops; three, so that one of them is no disruption.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from orch.component.process import clock
from orch.lifecycle.decide.records import Settings
from orch.wire import times
from orch.wire.errors import ApiError
from orch.wire.records.core import Node
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Container, Pod, PodSpec, Toleration
from tests.orch.lifecycle.test_main import World, is_ready, is_reported, until
from tests.orch.server.harness import Api, make_pki

pytestmark = pytest.mark.slow

NODES = {"n1": "n1", "n2": "n2", "n3": "admin"}  # and whose identity its agent has
TOLERATED_S = 3


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    pki = make_pki(tmp_path / "pki", clock.utc_now())
    api = await Api.start(pki, tmp_path / "data")
    world = World(api, pki, tmp_path)
    yield world
    await world.close()
    await api.stop()


async def place(world: World, name: str, on: str, seconds: int | None) -> None:
    """A pod that tolerates a silent node so long; None is for ever."""
    tolerations = [
        Toleration(
            key=f"node.orch.io/{key}",
            operator="Exists",
            effect="NoExecute",
            tolerationSeconds=seconds,
        )
        for key in ("unreachable", "not-ready")
    ]
    spec = PodSpec(
        nodeName=on,
        containers=[Container(name="c", image="busybox:1")],
        tolerations=tolerations,
    )
    await world.admin.create(Pod(metadata=ObjectMeta(name=name, namespace="default"), spec=spec))


async def leaving(world: World, name: str) -> bool:
    """Gone, or asked to end: its agent, which would confirm that, is silent."""
    try:
        pod = await world.admin.get(Pod, name, "default")
    except ApiError as error:
        return error.code == 404
    return pod.metadata.deletionTimestamp is not None


async def stayed_s(world: World, name: str, node: str) -> float:
    """Seconds from the node's NoExecute taint to the pod's deletion, by their own times."""
    taints = (await world.admin.get(Node, node)).spec.taints or ()
    (tainted,) = [t.timeAdded for t in taints if t.effect == "NoExecute"]
    meta = (await world.admin.get(Pod, name, "default")).metadata
    assert tainted and meta.deletionTimestamp
    grace = timedelta(seconds=meta.deletionGracePeriodSeconds or 0)
    deleted = times.parse_time(meta.deletionTimestamp) - grace
    return (deleted - times.parse_time(tainted)).total_seconds()


async def test_a_pod_on_a_silent_node_goes_when_its_toleration_has_run_out(world: World) -> None:
    await world.start_controller()
    for name, user in NODES.items():
        world.start_agent(name, user)
        await until(lambda name=name: is_ready(world, name, "True"))
    await place(world, "brief", "n3", TOLERATED_S)
    await place(world, "patient", "n3", None)
    await place(world, "elsewhere", "n1", 0)
    await world.silence("n3")

    async def tainted() -> bool:
        return ("unreachable", "NoExecute") in await world.taints("n3")

    await until(tainted)
    await until(lambda: leaving(world, "brief"))
    assert await stayed_s(world, "brief", "n3") >= TOLERATED_S - 1, "both times are whole seconds"
    assert not await leaving(world, "patient")
    assert not await leaving(world, "elsewhere")
    assert [await world.ready(name) for name in ("n1", "n2")] == ["True", "True"]
    await until(lambda: is_reported(world, "TaintManagerEviction"))


async def test_pods_of_a_deleted_node_go_and_others_stay(world: World) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "orch.lifecycle.options.Settings",
            lambda **given: Settings(**given, orphan_quarantine_s=0.5),
        )
        await world.start_controller()
    for name in ("n1", "n2"):
        world.start_agent(name)
        await until(lambda name=name: is_ready(world, name, "True"))
    await place(world, "left", "n2", None)
    await place(world, "kept", "n1", None)
    await world.silence("n2")
    await world.admin.delete(Node, "n2")

    async def only_the_other() -> bool:
        return [p.metadata.name for p in (await world.admin.list(Pod)).items] == ["kept"]

    await until(only_the_other)

    async def without_lease() -> bool:
        return await world.lease("n2") is None

    await until(without_lease)
    assert await world.lease("n1")
