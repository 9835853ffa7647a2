"""Mirror pods of static ones, on an API in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from nodeagent.pods.observed import ObservedPod
from nodeagent.pods.registry import PodRegistry
from nodeagent.pods.sources import mirror
from nodeagent.pods.sources.mirror import MirrorPlan, MirrorPods, mirror_of, plan_mirrors
from nodeagent.pods.sources.source import ApiSource
from nodeagent.pods.spec.spec import PodSettings
from orch.client.transport import TransportError
from orch.component.process import loops
from orch.wire.errors import already_exists, not_found
from orch.wire.records.core import Node
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod
from tests.fakes.api import FakeApi
from tests.fakes.pods import instance, pod, sandbox, seen

pytestmark = pytest.mark.looptime

NODE = Node(metadata=ObjectMeta(name="node1", uid="node-uid"))


def static(name: str = "web", digest: str = "abc") -> Pod:
    annotations = {"orch.io/config.source": "file", "orch.io/config.hash": digest}
    return pod(metadata={"name": name, "uid": digest, "annotations": annotations}, nodeName="node1")


class Mirrors:
    def __init__(self) -> None:
        self.api = FakeApi()
        settings = PodSettings(node_name="node1", root_dir="/root", pod_logs_dir="/logs")
        self.registry = PodRegistry(settings)
        self.complete = True
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *static_pods: Pod) -> None:
        """Begin, in the test's own clock."""
        self.registry.set_desired(static_pods, complete=self.complete)
        source = ApiSource(self.api, "node1")  # type: ignore[arg-type]
        self.kept = MirrorPods(self.api, self.registry, source, "node1")  # type: ignore[arg-type]
        self._tasks = [
            loops.spawn(source.run(lambda: None), name="source"),
            loops.spawn(self.kept.run(), name="mirrors"),
        ]
        await asyncio.sleep(5)

    async def stored(self) -> list[Pod]:
        return list((await self.api.list(Pod)).items)

    async def stop(self) -> None:
        await loops.cancel(*self._tasks)


@pytest_asyncio.fixture
async def mirrors() -> AsyncIterator[Mirrors]:
    mirrors = Mirrors()
    yield mirrors
    await mirrors.stop()


async def test_a_static_pod_gets_a_mirror_owned_by_the_node(mirrors: Mirrors) -> None:
    await mirrors.api.create(NODE)
    await mirrors.start(static())
    [mirror] = await mirrors.stored()
    assert mirror.key == "default/web"
    assert mirrors.kept.count == 1
    assert mirror.metadata.annotation("orch.io/config.mirror") == "abc"
    node = await mirrors.api.get(Node, "node1")
    [owner] = mirror.metadata.ownerReferences or []
    assert (owner.kind, owner.uid, owner.controller) == ("Node", node.metadata.uid, True)


async def test_a_deleted_mirror_is_made_again(mirrors: Mirrors) -> None:
    await mirrors.api.create(NODE)
    await mirrors.start(static())
    await mirrors.api.delete(Pod, "web", "default")
    await asyncio.sleep(10)
    [mirror] = await mirrors.stored()
    assert mirror.metadata.deletionTimestamp is None


async def test_a_changed_static_pod_gets_another_mirror(mirrors: Mirrors) -> None:
    await mirrors.api.create(NODE)
    await mirrors.start(static())
    mirrors.registry.set_desired([static(digest="def")])
    await asyncio.sleep(5)
    [mirror] = await mirrors.stored()
    assert mirror.metadata.annotation("orch.io/config.mirror") == "def"


async def test_the_mirror_of_a_pod_that_is_gone_is_deleted(mirrors: Mirrors) -> None:
    await mirrors.api.create(NODE)
    await mirrors.start(static())
    [mirror] = await mirrors.stored()
    mirrors.registry.set_desired([])
    await asyncio.sleep(5)
    assert await mirrors.stored() == []
    [call] = mirrors.api.made("delete")
    assert call.body == {"gracePeriodSeconds": 0, "uid": mirror.metadata.uid}, "this one, at once"


@pytest.mark.parametrize("wanted", [[], [static(digest="def")]], ids=["gone", "changed"])
async def test_a_mirror_stays_until_its_static_pod_has_ended(
    mirrors: Mirrors, wanted: list[Pod]
) -> None:
    await mirrors.api.create(NODE)
    await mirrors.start(static())
    [before] = await mirrors.stored()
    mirrors.registry.set_view(replace(seen(sandbox(), instance()), uid="abc"))
    mirrors.registry.set_desired(wanted)
    await asyncio.sleep(30)
    [during] = await mirrors.stored()
    assert (during.metadata.uid, during.metadata.deletionTimestamp) == (before.metadata.uid, None)
    mirrors.registry.set_view(ObservedPod("abc", "", ""))
    await asyncio.sleep(10)
    after = await mirrors.stored()
    assert [one.metadata.annotation("orch.io/config.mirror") for one in after] == [
        one.metadata.uid for one in wanted
    ]


async def test_a_mirror_that_is_made_already_is_no_trouble(
    mirrors: Mirrors, caplog: pytest.LogCaptureFixture
) -> None:
    await mirrors.api.create(NODE)
    mirrors.api.fail(already_exists("pods", "web"), verb="create", times=1)
    await mirrors.start(static())
    assert "cannot sync the mirror pods" not in caplog.text


async def test_no_mirror_is_deleted_before_every_source_was_read(mirrors: Mirrors) -> None:
    await mirrors.api.create(mirror_of(static(), None))
    mirrors.complete = False
    await mirrors.start()
    await asyncio.sleep(30)
    assert len(await mirrors.stored()) == 1


async def test_without_a_node_object_mirrors_come_later_and_unowned(mirrors: Mirrors) -> None:
    await mirrors.start(static())
    await asyncio.sleep(15)
    assert await mirrors.stored() == []
    await asyncio.sleep(20)
    [mirror] = await mirrors.stored()
    assert mirror.metadata.ownerReferences is None


async def test_an_api_that_is_away_is_said_once(
    mirrors: Mirrors, caplog: pytest.LogCaptureFixture
) -> None:
    await mirrors.api.create(NODE)
    mirrors.api.fail(TransportError("refused"), verb="create", times=float("inf"))
    await mirrors.start(static())
    await asyncio.sleep(60)
    assert caplog.text.count("cannot sync the mirror pods: refused") == 1
    mirrors.api.heal()
    await asyncio.sleep(5)
    assert len(await mirrors.stored()) == 1


def test_only_what_differs_is_planned() -> None:
    same, gone = mirror_of(static(), NODE), mirror_of(static("gone"), NODE)
    planned = plan_mirrors([static(), static("new")], [same, gone])
    assert [p.metadata.name for p in planned.create] == ["new"]
    assert [p.metadata.name for p in planned.delete] == ["gone"]


async def test_nothing_is_compared_while_nothing_changes(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mirrors.api.create(NODE)
    await mirrors.start(static(), static("other", "def"))
    compared: list[int] = []

    def counted(*arguments: Any) -> MirrorPlan:
        compared.append(1)
        return plan_mirrors(*arguments)

    monkeypatch.setattr(mirror, "plan_mirrors", counted)
    await asyncio.sleep(60)
    assert compared == []
    mirrors.registry.set_desired([static()])
    await asyncio.sleep(5)
    assert [pod.metadata.name for pod in await mirrors.stored()] == ["web"]


async def test_a_mirror_that_is_refused_holds_up_no_other(
    mirrors: Mirrors, caplog: pytest.LogCaptureFixture
) -> None:
    await mirrors.api.create(NODE)
    refusal = not_found("namespaces", "absent")
    mirrors.api.fail(refusal, verb="create", times=1)
    await mirrors.start(static("first", "a"), static("second", "b"))
    names = {pod.metadata.name for pod in await mirrors.stored()}
    assert "second" in names
    assert 'namespaces "absent" not found' in caplog.text
