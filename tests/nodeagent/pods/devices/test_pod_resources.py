"""Who asks which pods have which devices, with the stubs of somebody else's."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from nodeagent.pods.devices import podresources_pb2 as pb
from nodeagent.pods.devices import podresources_pb2_grpc as rpc
from nodeagent.pods.devices.assignment import Devices
from nodeagent.pods.devices.pod_resources import PodResources
from orch.component.process import loops
from tests.fakes.device_plugins import RESOURCE, running, until
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import PodWorld, named

pytestmark = pytest.mark.seconds(20)


class Asked:
    """The socket of a node, and a client of it."""

    def __init__(self, world: PodWorld) -> None:
        assert world.devices
        root = world.settings.root_dir
        self.world, self.devices = world, world.devices
        self.socket = Path(root, "pod-resources", "kubelet.sock")
        self.folder = Path(root, "device-plugins")
        self._service = PodResources(root, world.devices, world.registry, world.counts)

    async def start(self) -> None:
        await self.world.start()
        self._task = loops.spawn(self._service.run(), name="pod resources")
        await until(lambda: self.socket.exists() and (self.folder / "kubelet.sock").exists())
        self._channel = grpc.aio.insecure_channel(f"unix:{self.socket}")
        self.stub: Any = rpc.PodResourcesListerStub(self._channel)
        self.of_v1alpha1: Any = self._channel.unary_unary(
            "/v1alpha1.PodResourcesLister/List",
            request_serializer=pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pb.ListPodResourcesResponse.FromString,
        )

    async def stop(self) -> None:
        await self._channel.close()
        await loops.cancel(self._task)
        await self.world.stop()


@pytest_asyncio.fixture
async def asked(tmp_path: Path) -> AsyncIterator[Asked]:
    asked = Asked(PodWorld(tmp_path, gives_devices=True))
    await asked.start()
    yield asked
    await asked.stop()


async def test_pods_are_listed_with_their_devices(asked: Asked) -> None:
    limits = {"limits": {RESOURCE: "2"}}
    async with running(asked.folder, "4", "numa=1"):
        await until(lambda: asked.devices.inventory.healthy(RESOURCE))
        sidecar = container_data("beside", restartPolicy="Always")
        record = pod(
            container_data("app", resources=limits),
            initContainers=[sidecar, container_data("first")],
        )
        asked.world.source.set(record, named(pod(), "plain", "uid-plain"))
        await until(lambda: asked.devices.book.of(UID, "app"))
        everything = await asked.stub.GetAllocatableResources(pb.AllocatableResourcesRequest())
        assert [list(d.device_ids) for d in everything.devices] == [
            ["dev-0", "dev-1", "dev-2", "dev-3"]
        ]
        listed = (await asked.stub.List(pb.ListPodResourcesRequest())).pod_resources
        assert (await asked.of_v1alpha1(pb.ListPodResourcesRequest())).pod_resources == listed
        found = {one.name: one for one in listed}
        assert set(found) == {"web", "plain"}
        assert [c.name for c in found["web"].containers] == ["beside", "app"]
        [devices] = found["web"].containers[1].devices
        assert (devices.resource_name, list(devices.device_ids)) == (RESOURCE, ["dev-0", "dev-1"])
        assert [node.ID for node in devices.topology.nodes] == [1]
        request = pb.GetPodResourcesRequest(pod_name="web", pod_namespace="default")
        assert (await asked.stub.Get(request)).pod_resources == found["web"]
    assert asked.world.counts.pod_resources_requests.total() == 4


async def test_an_unknown_pod_is_refused_and_counted(asked: Asked) -> None:
    request = pb.GetPodResourcesRequest(pod_name="none", pod_namespace="default")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asked.stub.Get(request)
    assert refused.value.details() == "pod none in namespace default not found"
    await until(lambda: asked.world.counts.pod_resources_errors == {"get": 1})


async def test_before_the_devices_are_known_no_pod_is_told_to_have_none(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked.world.source.set(pod())
    await until(lambda: asked.world.registry.find("default", "web"))
    monkeypatch.setattr(Devices, "is_loaded", False)
    one = pb.GetPodResourcesRequest(pod_name="web", pod_namespace="default")
    for call in (asked.stub.List(pb.ListPodResourcesRequest()), asked.stub.Get(one)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_before_the_pods_are_known_nobody_is_told_that_there_are_none(asked: Asked) -> None:
    asked.world.source.ready = False
    asked.world.source.set(pod())
    await until(lambda: not asked.world.registry.complete)
    one = pb.GetPodResourcesRequest(pod_name="other", pod_namespace="default")
    for call in (asked.stub.List(pb.ListPodResourcesRequest()), asked.stub.Get(one)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    asked.world.source.ready = True
    asked.world.source.tell()
    await until(lambda: asked.world.registry.complete)
    listed = await asked.stub.List(pb.ListPodResourcesRequest())
    assert [one.name for one in listed.pod_resources] == ["web"]


async def test_who_asks_too_often_is_refused(asked: Asked) -> None:
    calls = [asked.stub.List(pb.ListPodResourcesRequest()) for _ in range(30)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [one for one in answers if isinstance(one, grpc.aio.AioRpcError)]
    assert 1 <= len(refused) <= 20  # few on a busy machine, which asks slowly
    assert {one.code() for one in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert {one.details() for one in refused} == {"rejected by rate limit"}
    await until(lambda: asked.world.counts.pod_resources_errors["list"] == len(refused))


async def test_only_the_agents_own_user_may_ask(asked: Asked) -> None:
    assert stat.S_IMODE(asked.socket.parent.stat().st_mode) == 0o700
    await until(lambda: stat.S_IMODE(asked.socket.stat().st_mode) == 0o600)  # once it is served
