"""ConfigMaps and Secrets of an API in memory, as pods on a runtime in memory get them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from nodeagent.pods.spec.references import Reference
from nodeagent.pods.volumes import directories
from nodeagent.pods.volumes.objects import AT_ONCE, REFRESH_S, PodObjects
from orch.client.kubeconfig import ClientConfig
from orch.client.resources import ApiClient
from orch.client.transport import Transport, TransportError
from orch.wire.errors import ApiError
from orch.wire.records.configuration import ConfigMap, Secret
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod
from tests.fakes.api import FakeApi
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import PodWorld, named

pytestmark = pytest.mark.looptime

MOUNT = {"name": "v", "mountPath": "/v"}
VOLUME = {"name": "v", "configMap": {"name": "settings"}}
KEY = {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}}


def config(**data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name="settings", namespace="default"), data=data)


def secret(**data: str) -> Secret:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return Secret(metadata=ObjectMeta(name="keys", namespace="default"), data=encoded)


def mounting() -> Pod:
    return pod(container_data("app", volumeMounts=[MOUNT]), volumes=[VOLUME])


def color(world: PodWorld) -> str:
    [path] = world.directory.glob("root/pods/*/volumes/configmap/v")
    return Path(path, "color").read_text()


async def test_variables_come_from_keys_of_objects(world: PodWorld) -> None:
    await world.api.create(config(color="red"))
    await world.api.create(secret(key="s3cret"))
    whole = [{"secretRef": {"name": "keys"}}]
    await world.start(pod(container_data("app", env=[KEY], envFrom=whole)))
    await world.until(lambda: "app" in world.running())
    assert dict(world.made("app").spec.env) == {"COLOR": "red", "key": "s3cret"}


async def test_a_missing_object_is_a_configuration_error_until_it_is_there(
    world: PodWorld,
) -> None:
    await world.start(pod(container_data("app", env=[KEY])))
    await world.until(lambda: world.waiting() == "CreateContainerConfigError")
    waiting = world.state().waiting
    assert waiting and waiting.message == 'configmap "settings" not found'
    await world.api.create(config(color="red"))
    await world.until(lambda: "app" in world.running(), within_s=30)


async def test_a_volume_of_a_missing_object_keeps_the_pod_from_starting_and_says_so(
    world: PodWorld,
) -> None:
    await world.start(mounting())
    await world.until(lambda: "FailedMount" in world.reasons())
    assert world.waiting() == "ContainerCreating"
    assert not world.runtime.sandboxes
    await world.api.create(config(color="red"))
    await world.until(lambda: "app" in world.running(), within_s=30)
    assert color(world) == "red"
    assert world.made("app").spec.mounts[0].readonly


async def test_files_follow_their_object_while_the_pod_runs(world: PodWorld) -> None:
    made = await world.api.create(config(color="red"))
    await world.start(mounting())
    await world.until(lambda: "app" in world.running())
    await world.api.update(made.model_copy(update={"data": {"color": "blue"}}))
    await world.until(lambda: color(world) == "blue", within_s=70)
    await world.api.delete(ConfigMap, "settings", "default")
    await asyncio.sleep(70)
    assert color(world) == "blue", "what is gone stays as it was"
    assert "FailedMount" in world.reasons()
    assert list(world.running()) == ["app"]


async def test_a_running_pod_is_looked_after_while_its_disk_fails(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.api.create(config(color="red"))
    await world.start(mounting())
    await world.until(lambda: "app" in world.running())

    def fails(*_: object) -> bool:
        raise OSError(5, "Input/output error", "root/pods/uid")

    monkeypatch.setattr(directories, "make", fails)
    await asyncio.sleep(70)
    assert "unexpected error" not in caplog.text
    world.runtime.exit(world.running()["app"], 1)
    await world.until(lambda: bool(world.waiting()), within_s=30)


async def test_an_api_that_is_away_leaves_files_and_restarts_as_they_were(
    world: PodWorld,
) -> None:
    await world.api.create(config(color="red"))
    await world.start(pod(container_data("app", env=[KEY], volumeMounts=[MOUNT]), volumes=[VOLUME]))
    await world.until(lambda: "app" in world.running())
    world.api.fail(TransportError("refused"), times=float("inf"))
    world.runtime.crash(world.running()["app"])
    await world.until(lambda: "app" in world.running(), within_s=60)
    assert dict(world.made("app").spec.env) == {"COLOR": "red"}
    await asyncio.sleep(100)
    assert color(world) == "red"


@pytest.mark.parametrize("error", [TransportError("refused"), ApiError(403, "Forbidden", "not")])
async def test_what_cannot_be_read_is_not_taken_for_absent(error: Exception) -> None:
    api = FakeApi()
    api.fail(error)
    objects = PodObjects(api)  # type: ignore[arg-type]
    found = await objects.of(pod(container_data("app", env=[KEY])))
    data = found[Reference("ConfigMap", "settings")]
    assert not data.absent
    assert str(error) in data.problem


META = {"name": "settings", "namespace": "default", "uid": "u"}
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap"}


@pytest.mark.looptime(False)
@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, {}),
        (200, CONFIG),
        (200, {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"}),
        (200, {**CONFIG, "kind": "Secret", "metadata": META}),
        (200, {**CONFIG, "metadata": {**META, "name": "other"}}),
        (200, {**CONFIG, "metadata": {**META, "namespace": "other"}}),
        (200, {**CONFIG, "metadata": META, "binaryData": {"a": "no base64"}}),
        (404, "404 page not found"),
    ],
)
async def test_an_answer_of_another_kind_is_not_an_empty_object(
    status: int, answer: object, aiohttp_server: Callable[[web.Application], Awaitable[TestServer]]
) -> None:
    async def handle(_request: web.Request) -> web.Response:
        return web.json_response(answer, status=status)

    app = web.Application()
    app.router.add_get("/api/v1/namespaces/default/configmaps/settings", handle)
    url = str((await aiohttp_server(app)).make_url("/"))[:-1]
    transport = Transport(ClientConfig(server=url))
    found = await PodObjects(ApiClient(transport)).of(pod(container_data("app", env=[KEY])))
    await transport.close()
    data = found[Reference("ConfigMap", "settings")]
    assert (data.absent, data.data) == (False, {})
    assert data.problem.startswith('configmap "settings" cannot be read: ')


async def test_without_an_api_server_there_are_no_objects() -> None:
    found = await PodObjects(None).of(pod(container_data("app", env=[KEY])))
    assert "there is no API server" in found[Reference("ConfigMap", "settings")].problem


async def test_nothing_of_a_pod_that_is_gone_is_kept() -> None:
    api = FakeApi()
    await api.create(config(color="red"))
    objects = PodObjects(api)  # type: ignore[arg-type]
    await objects.of(mounting())
    api.fail(TransportError("refused"), times=float("inf"))
    reference = Reference("ConfigMap", "settings")
    assert (await objects.of(mounting()))[reference].data == {"color": b"red"}
    objects.forget(UID)
    assert (await objects.of(mounting()))[reference].problem


class SlowApi(FakeApi):
    """Takes a while for each object, and counts those that it is asked for at once."""

    under_way = most = 0

    async def find(self, model: type[Any], name: str, namespace: str = "") -> Any:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0.01)
        self.under_way -= 1
        return await super().find(model, name, namespace)


def referring(number: int, namespace: str, count: int) -> Pod:
    sources = [{"configMapRef": {"name": f"c{n}", "optional": True}} for n in range(count)]
    made = named(pod(container_data("app", envFrom=sources)), f"p{number}", f"u{number}")
    metadata = made.metadata.model_copy(update={"namespace": namespace})
    return made.model_copy(update={"metadata": metadata})


@pytest.mark.slow
async def test_pods_that_refer_to_thousands_of_objects_keep_nobody_waiting() -> None:
    api = SlowApi()
    objects = PodObjects(api)  # type: ignore[arg-type]
    greedy = [
        asyncio.ensure_future(objects.of(referring(number, "red", 300))) for number in range(20)
    ]
    await asyncio.sleep(0.1)
    began_s = asyncio.get_running_loop().time()
    found = await objects.of(referring(99, "blue", 5))
    assert all(data.absent for data in found.values())
    assert asyncio.get_running_loop().time() - began_s < 0.1
    assert api.most <= AT_ONCE, "others of the node need connections too"
    for data in await asyncio.gather(*greedy):
        assert len(data) == 300


class SilentApi(FakeApi):
    """Nobody answers, as while the network drops everything."""

    silent = True

    async def find(self, model: type[Any], name: str, namespace: str = "") -> Any:
        if self.silent:
            await asyncio.sleep(10)
            raise TransportError("no answer within 10 s")
        return await super().find(model, name, namespace)


async def test_a_silent_server_is_waited_for_once_by_all_pods_and_asked_again() -> None:
    """Read few at a time, they kept the workers of pods waiting for 210 s."""
    api = SilentApi()
    objects, loop = PodObjects(api), asyncio.get_running_loop()  # type: ignore[arg-type]
    pods = [referring(number, f"ns{number % 3}", 100) for number in range(20)]
    began_s = loop.time()
    for found in await asyncio.gather(*map(objects.of, pods)):
        assert {data.problem.partition(" cannot be read: ")[2] for data in found.values()} == {
            "no answer within 10 s"
        }
    assert loop.time() - began_s < 11
    api.silent = False
    await asyncio.sleep(5)
    assert all(data.absent for data in (await objects.of(pods[0])).values())


async def test_pods_share_the_content_of_an_object_until_it_changes() -> None:
    """128 MiB of a namespace would be in memory once for each pod."""
    api = FakeApi()
    await api.create(config(color="red"))
    objects, reference = PodObjects(api), Reference("ConfigMap", "settings")  # type: ignore[arg-type]
    pods = [named(mounting(), f"p{number}", f"u{number}") for number in range(3)]
    first, second = [(await objects.of(one))[reference] for one in pods[:2]]
    assert first is second
    stored = await api.get(ConfigMap, "settings", "default")
    await api.update(stored.model_copy(update={"data": {"color": "blue"}}))
    assert (await objects.of(pods[2]))[reference].data == {"color": b"blue"}


async def test_pods_that_show_the_same_object_read_it_once_and_a_changed_pod_at_once() -> None:
    api = FakeApi()
    await api.create(config(color="red"))
    objects = PodObjects(api)  # type: ignore[arg-type]
    reference = Reference("ConfigMap", "settings")
    pods = [named(mounting(), f"p{number}", f"u{number}") for number in range(20)]
    for _ in range(2):
        for one in pods:
            await objects.shown_in_volumes(one)
        await asyncio.sleep(REFRESH_S)
    before = len(api.made("get"))
    for one in pods:
        await objects.shown_in_volumes(one)
    assert len(api.made("get")) == before + 1
    stored = await api.get(ConfigMap, "settings", "default")
    await api.update(stored.model_copy(update={"data": {"color": "blue"}}))
    assert (await objects.shown_in_volumes(pods[0]))[reference].data == {"color": b"red"}
    touched = pods[0].model_copy()
    assert (await objects.shown_in_volumes(touched))[reference].data == {"color": b"blue"}
