"""Pods get devices of a plugin that is a program of its own, and keep them; in real time."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nodeagent.pods.devices import allocation, ledger
from nodeagent.pods.devices.allocation import DeviceError
from nodeagent.runtime.base import ContainerState
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod
from tests.fakes.device_plugins import RESOURCE, PluginProgram, running, until
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import PodWorld, named

pytestmark = [pytest.mark.slow, pytest.mark.seconds(40)]


def wanting(count: int = 1, name: str = "app", **fields: Any) -> dict[str, Any]:
    limits = {RESOURCE: str(count)}
    return container_data(name, resources={"limits": limits, "requests": limits}, **fields)


def folder(world: PodWorld) -> Path:
    return Path(world.settings.root_dir, "device-plugins")


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[PodWorld]:
    world = PodWorld(tmp_path, gives_devices=True)
    await world.start()
    await until((folder(world) / "kubelet.sock").exists)
    yield world
    await world.stop()


def healthy(world: PodWorld, count: int) -> Any:
    assert world.devices
    inventory = world.devices.inventory
    return lambda: len(inventory.healthy(RESOURCE) or ()) == count


async def admitted(world: PodWorld, *pods: Pod) -> None:
    world.source.set(*pods)
    names = {p.metadata.uid for p in pods}
    await until(lambda: names <= {c.spec.labels["orch.io/pod.uid"] for c in live(world)})


def live(world: PodWorld) -> list[Any]:
    containers = world.runtime.containers.values()
    return [c for c in containers if c.state is ContainerState.RUNNING]


def given(container: Any) -> list[str]:
    return [device.container_path for device in container.spec.devices]


async def refused(
    world: PodWorld, name: str = "web", reason: str = "UnexpectedAdmissionError"
) -> str:
    def status() -> Any:
        found = world.registry.find("default", name)
        return found and found.status

    await until(lambda: status() and status().phase == "Failed")
    assert status().reason == reason
    return str(status().message)


async def test_a_container_gets_what_the_plugin_grants_and_shows_its_health(
    world: PodWorld,
) -> None:
    async with running(folder(world), "2", "pre_start=1") as plugin:
        await until(healthy(world, 2))
        await admitted(world, pod(wanting()))
        made = world.made("app").spec
        assert [d.host_path for d in made.devices] == ["/dev/null"]
        assert dict(made.env)["DEVICES"] == "dev-0"
        assert made.annotations["example.com/devices"] == "dev-0"
        assert plugin.calls("PreStartContainer") == [
            {"call": "PreStartContainer", "ids": ["dev-0"]}
        ]

        def health() -> Any:
            [status] = world.status().status.containerStatuses or [None]
            shown = status and status.allocatedResourcesStatus
            return shown and [
                (r.name, r.resources[0].resourceID, r.resources[0].health) for r in shown
            ]

        await until(lambda: health() == [(RESOURCE, "dev-0", "Healthy")])
        await plugin.tell(devices={"dev-0": "Unhealthy", "dev-1": "Healthy"})
        await until(lambda: health() == [(RESOURCE, "dev-0", "Unhealthy")])
    await until(lambda: health() == [(RESOURCE, "dev-0", "Unknown")])


async def test_pods_beyond_the_free_devices_are_refused_with_the_reason(world: PodWorld) -> None:
    async with running(folder(world), "2"):
        await until(healthy(world, 2))
        await admitted(world, pod(wanting(2)))
        world.source.set(pod(wanting(2)), named(pod(wanting(1)), "other", "uid-other"))
        assert await refused(world, "other") == (
            "Pod was rejected: Allocate failed due to requested number of devices unavailable for "
            f"{RESOURCE}. Requested: 1, Available: 0, which is unexpected"
        )
        world.source.set(named(pod(wanting(2)), "third", "uid-third"))
        await until(lambda: not [c for c in live(world) if c.spec.labels["orch.io/pod.uid"] == UID])
        world.source.set(named(pod(wanting(2)), "fourth", "uid-fourth"))
        await admitted(world, named(pod(wanting(2)), "fourth", "uid-fourth"))


@pytest.mark.parametrize(
    ("words", "told", "text"),
    [
        (("fail=1",), {}, "INTERNAL: the device is on fire"),
        ((), {"answer": {"mounts": [{"container_path": "/a", "host_path": "b"}]}}, "mounts[0]"),
        ((), {"answer": {"envs": {"A=B": "x"}}}, "envs: 'A=B'"),
    ],
)
async def test_a_plugin_that_fails_or_answers_nonsense_costs_the_pod_only(
    world: PodWorld, words: tuple[str, ...], told: dict[str, Any], text: str
) -> None:
    async with running(folder(world), "2", *words) as plugin:
        await until(healthy(world, 2))
        await plugin.tell(**told)
        world.source.set(pod(wanting()), named(pod(), "plain", "uid-plain"))
        await until(lambda: live(world))
        assert text in await refused(world)
        assert world.devices and not world.devices.book.holders(RESOURCE)


async def test_a_plugin_that_never_answers_delays_nobody_else(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeagent.pods.devices.plugin.ALLOCATE_S", 1.0)
    async with (
        running(folder(world), "2", "hang=1") as hanging,
        running(folder(world), "1", resource="a.b/c", endpoint="abc.sock"),
    ):
        await until(healthy(world, 2))
        await until(lambda: world.devices and world.devices.inventory.healthy("a.b/c"))
        other = container_data("app", resources={"limits": {"a.b/c": "1"}})
        world.source.set(pod(wanting()), named(pod(other), "quick", "uid-quick"))
        await until(lambda: hanging.calls("Allocate"))
        await until(lambda: live(world))
        assert "DEADLINE_EXCEEDED" in await refused(world)


async def test_init_containers_hand_their_devices_on_and_sidecars_keep_theirs(
    world: PodWorld,
) -> None:
    async with running(folder(world), "3") as plugin:
        await until(healthy(world, 3))
        inits = [wanting(2, "first"), wanting(1, "beside", restartPolicy="Always")]
        world.source.set(pod(wanting(1), wanting(1, "more"), initContainers=inits))
        await until(lambda: len(plugin.calls("Allocate")) == 4)
        ids = [call["ids"] for call in plugin.calls("Allocate")]
        assert ids == [["dev-0", "dev-1"], ["dev-0"], ["dev-1"], ["dev-2"]]


async def test_what_the_plugin_prefers_is_given(world: PodWorld) -> None:
    async with running(folder(world), "4", "preferred=1") as plugin:
        await until(healthy(world, 4))
        await plugin.tell(prefer=["dev-3", "gone", "dev-1"])
        await admitted(world, pod(wanting(2)))
        assert sorted(given(world.made("app"))) == ["/dev/dev-1", "/dev/dev-3"]


async def test_a_resource_without_plugin_is_left_to_others(world: PodWorld) -> None:
    world.node = Node.from_wire({"status": {"allocatable": {RESOURCE: "1", "pods": "10"}}})
    await admitted(world, pod(wanting()))
    assert given(world.made("app")) == []
    world.source.set(pod(wanting()), named(pod(wanting()), "other", "uid-other"))
    text = await refused(world, "other", f"OutOf{RESOURCE}")
    assert text.endswith(f"{RESOURCE}, requested: 1, used: 1, capacity: 1")


async def test_another_agent_keeps_what_was_given_with_or_without_the_plugin(
    world: PodWorld,
) -> None:
    async with running(folder(world), "2") as plugin:
        await until(healthy(world, 2))
        await admitted(world, pod(wanting()))
    await world.stop()
    heir = world.successor()
    await heir.start(pod(wanting()))
    await until(lambda: heir.registry.find("default", "web"))
    world.runtime.exit(heir.running()["app"], 1)
    await until(lambda: heir.made("app").spec.attempt == 1)
    assert given(heir.made("app")) == ["/dev/dev-0"]
    assert dict(heir.made("app").spec.env)["DEVICES"] == "dev-0"
    async with running(folder(heir), "2") as plugin:
        await until(healthy(heir, 2))
        other = named(pod(wanting()), "other", "uid-other")
        await admitted(heir, pod(wanting()), other)
        assert [call["ids"] for call in plugin.calls("Allocate")] == [["dev-1"]]


async def test_without_its_file_an_agent_learns_from_the_runtime_who_has_what(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(world.settings.root_dir, "device-allocations.json")
    async with running(folder(world), "2"):
        await until(healthy(world, 2))
        await admitted(world, pod(wanting()))
    await world.stop()
    path.write_bytes(path.read_bytes().replace(b"dev-0", b"dev-1"))
    first_id = world.running()["app"]
    heir = world.successor()
    await heir.start(pod(wanting()))
    await until(lambda: heir.registry.settled(UID))
    assert str(path) in caplog.text
    async with running(folder(heir), "2") as plugin:
        await until(healthy(heir, 2))
        other = named(pod(wanting()), "other", "uid-other")
        await admitted(heir, pod(wanting()), other)
        assert [call["ids"] for call in plugin.calls("Allocate")] == [["dev-1"]]
        world.runtime.exit(first_id, 1)
        await until(lambda: len(plugin.calls("Allocate")) == 2)
        assert plugin.calls("Allocate")[1]["ids"] == ["dev-0"], "it is asked for the grant again"
        await until(lambda: heir.made("app").spec.attempt == 1)
        assert given(heir.made("app")) == ["/dev/dev-0"]
    record = json.loads(path.read_bytes().split(b"\n", 1)[1])
    assert len(record["entries"]) == 2


async def test_no_container_starts_with_devices_that_are_not_written_down(world: PodWorld) -> None:
    path = Path(world.settings.root_dir, "device-allocations.json")
    async with running(folder(world), "2"):
        await until(healthy(world, 2))
        await admitted(world, pod(wanting()))
    await world.stop()
    path.unlink()
    heir, wanted = world.successor(), pod(wanting())
    await heir.start(wanted)
    await until(lambda: heir.registry.settled(UID))
    async with running(folder(heir), "2") as plugin:
        await until(healthy(heir, 2))

        def blocked() -> bool:  # what was under way may write it once more
            path.unlink(missing_ok=True)
            with suppress(FileExistsError):
                path.mkdir()
            return path.is_dir()

        await until(blocked)
        assert heir.devices
        for _ in range(2):
            with pytest.raises(DeviceError, match="cannot be written down"):
                await heir.devices.of_container(wanted, wanted.spec.containers[0])
        path.rmdir()
        assert await heir.devices.of_container(wanted, wanted.spec.containers[0])
        assert path.is_file()
        assert len(plugin.calls("Allocate")) == 1


async def test_a_pod_of_many_containers_is_written_down_once_and_has_a_bounded_number(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand init containers may use the same devices one after the other."""
    writes: list[bytes] = []
    replace_file = ledger.replace_file

    def write(path: Path, content: bytes, *, durable: bool) -> None:
        writes.append(content)
        replace_file(path, content, durable=durable)

    monkeypatch.setattr(ledger, "replace_file", write)
    monkeypatch.setattr(allocation, "MAX_OF_POD", 8)
    inits = [wanting(2, f"init-{number}") for number in range(3)]
    async with running(folder(world), "4") as plugin:
        await until(healthy(world, 4))
        await until(lambda: writes)  # which resources there are
        writes.clear()
        world.source.set(pod(container_data("app"), initContainers=inits))
        await until(lambda: len(plugin.calls("Allocate")) == 3 and writes)
        assert world.devices and world.devices.book.count(UID) == 6
        assert len(writes) == 1
        more = [wanting(2, f"init-{number}") for number in range(5)]
        world.source.set(named(pod(wanting(2), initContainers=more), "more", "uid-more"))
        assert "may have 8 devices" in await refused(world, "more")


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(12, id="12"),
        pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(1800)], id="200"),
    ],
)
async def test_no_device_is_given_twice_while_plugins_and_agents_are_killed(
    world: PodWorld, rounds: int
) -> None:
    """Each round kills the plugin or ends the agent, and changes which pods there are."""
    rand, agent, count = random.Random(7), world, 4
    pods: dict[str, Pod] = {}
    plugin = await PluginProgram.start(folder(world), str(count))
    await until(healthy(agent, count))
    allocated, refusals = 0, set[str]()
    for number in range(rounds):
        uid = f"uid-{number}"
        pods[uid] = named(pod(wanting(rand.randint(1, 2))), f"p{number}", uid)
        if len(pods) > 3 or rand.random() < 0.3:
            del pods[rand.choice(list(pods))]
        agent.source.set(*pods.values())
        if rand.random() < 0.6:  # else the end comes in the midst of it
            await until(partial(is_settled, agent, pods))
        end = rand.random()
        if end < 0.4:
            await plugin.kill()
            allocated += len(plugin.calls("Allocate"))
            plugin, said = await PluginProgram.start(folder(agent), str(count)), 0
        elif end < 0.7:
            said = registrations(plugin)
            await agent.stop()
            agent = agent.successor()
            await agent.start(*pods.values())
        if end < 0.7:
            await until(partial(has_registered, plugin, said))
        await until(healthy(agent, count))
        await until(partial(is_settled, agent, pods))
        held = [path for container in live(agent) for path in given(container)]
        assert len(held) == len(set(held)), held
        failed = [p.metadata.uid or "" for p in agent.registry.pods() if p.status.phase == "Failed"]
        refusals |= set(failed)
        pods = {uid: kept for uid, kept in pods.items() if uid not in failed}
    allocated += len(plugin.calls("Allocate"))
    await plugin.kill()
    if agent is not world:
        await agent.stop()
    print(f"{rounds} rounds: {allocated} allocations, {len(refusals)} refusals, none given twice")
    assert allocated > rounds / 4


def registrations(plugin: PluginProgram) -> int:
    return sum("registered" in line for line in plugin.said)


def has_registered(plugin: PluginProgram, before: int) -> bool:
    return registrations(plugin) > before


def is_settled(world: PodWorld, pods: dict[str, Pod]) -> bool:
    """Whether each pod runs or is refused, and no other runs."""
    shown = {p.metadata.uid: p.status.phase for p in world.registry.pods()}
    uids = {c.spec.labels["orch.io/pod.uid"] for c in live(world)}
    over = {uid for uid in pods if shown.get(uid) == "Failed"}
    return uids == set(pods) - over and not any(
        c.state is ContainerState.CREATED for c in world.runtime.containers.values()
    )


async def test_without_a_plugin_the_resources_of_an_earlier_agent_are_none(
    world: PodWorld,
) -> None:
    async with running(folder(world), "2"):
        await until(healthy(world, 2))
        await asyncio.sleep(0)
        path = Path(world.settings.root_dir, "device-allocations.json")
        await until(lambda: RESOURCE.encode() in path.read_bytes())
    await world.stop()
    heir = world.successor()
    await heir.start(pod(wanting()))
    assert "no healthy devices present" in await refused(heir)
    assert heir.devices and heir.devices.inventory.counts() == {RESOURCE: (0, 0)}
