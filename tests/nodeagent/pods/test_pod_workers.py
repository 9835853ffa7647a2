"""Pods from desired to gone, on a runtime in memory and a clock that jumps."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.pods.volumes.volumes import VolumeStore
from nodeagent.runtime.base import ContainerSpec, RuntimeUnavailable, SandboxSpec
from orch.component.process import loops
from orch.wire.records.pods import Container, Pod
from tests.fakes.mounts import FakeMounts
from tests.fakes.pods import UID, container_data, pod
from tests.fakes.podworld import FakeSource, PodWorld, changed, named

pytestmark = pytest.mark.looptime

OTHER_UID = "99999999-2222-3333-4444-555555555555"


async def test_a_desired_pod_runs_and_its_status_says_so(world: PodWorld) -> None:
    await world.start(pod("a", "b"))
    await world.until(lambda: len(world.running()) == 2)
    await world.until(lambda: world.status().status.phase == "Running")
    status = world.status().status
    assert status.podIP == "10.88.0.3"
    assert status.hostIP == "192.0.2.1"
    assert [c.ready for c in status.containerStatuses or ()] == [True, True]
    assert world.registry.running_container("default", "web", "a") == world.running()["a"]
    assert {c.name for c in world.registry.targets()[0].containers} == {"a", "b"}


async def test_pods_that_start_side_by_side_all_run(world: PodWorld) -> None:
    await world.start(*(named(pod(), f"web{n}", f"uid-{n}") for n in range(20)))
    await world.until(lambda: len(world.runtime.containers) == 20)


async def test_another_agent_finds_the_containers_again_and_touches_none(world: PodWorld) -> None:
    await world.start(pod("a", "b"))
    await world.until(lambda: world.status().status.phase == "Running")
    before = world.running()
    await world.stop()
    assert world.running() == before, "stopping the agent must not stop pods"
    heir = world.successor()
    writes = len(world.runtime.calls)
    await heir.start(pod("a", "b"))
    await heir.until(lambda: heir.status().status.phase == "Running")
    await asyncio.sleep(60)
    assert heir.running() == before
    made = {call.operation for call in world.runtime.calls[writes:]}
    lists = {"list_sandboxes", "list_containers", "events"}
    assert made <= {*lists, "sandbox_detail", "container_detail"}


async def test_a_crashed_container_restarts_with_back_off_and_counts(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    loop = asyncio.get_running_loop()
    for restarts, expected_s in ((1, 0), (2, 10), (3, 20), (4, 40)):
        world.runtime.exit(world.running()["app"], 1)
        crashed_s = loop.time()
        await world.until(lambda: "app" in world.running(), within_s=100)
        assert loop.time() - crashed_s == pytest.approx(expected_s, abs=4)
        await world.until(lambda: world.state().running is not None)
        statuses = world.status().status.containerStatuses or []
        assert statuses[0].restartCount == restarts
        assert statuses[0].lastState and statuses[0].lastState.terminated
        assert statuses[0].lastState.terminated.exitCode == 1
    assert world.made("app").spec.attempt == 4
    await world.until(lambda: len(world.runtime.containers) == 2)  # old instances are removed


async def test_the_restart_count_and_back_off_survive_the_agent(world: PodWorld) -> None:
    await world.start(pod())
    for _ in range(2):
        await world.until(lambda: "app" in world.running(), within_s=60)
        world.runtime.exit(world.running()["app"], 1)
    await world.until(lambda: world.waiting() == "CrashLoopBackOff")
    await world.stop()
    heir = world.successor()
    await heir.start(pod())
    await heir.until(lambda: heir.waiting() == "CrashLoopBackOff")
    await heir.until(lambda: "app" in heir.running())
    assert heir.made("app").spec.attempt == 2


async def test_a_pod_removed_from_its_source_leaves_nothing(world: PodWorld) -> None:
    volumes = [{"name": "scratch", "emptyDir": {}}]
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    await world.start(pod(container_data("app", volumeMounts=mounts), volumes=volumes))
    await world.until(lambda: "app" in world.running())
    assert len(list(world.directory.glob(f"cgroup/*/orchpods/**/pod{UID}"))) == 3
    assert list(world.directory.glob("root/pods/*/volumes/empty-dir/scratch"))
    world.source.set()
    await world.until(lambda: not world.traces())
    assert world.registry.find("default", "web") is None
    assert world.removed == []


async def test_a_changed_pod_replaces_the_one_of_its_name_after_its_end(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    hold = world.runtime.hold("stop_container")
    world.source.set(named(pod("new"), "web", OTHER_UID))
    await hold.reached.wait()
    await asyncio.sleep(5)
    assert len(world.runtime.sandboxes) == 1, "the new pod must wait for the old one"
    hold.release()
    await world.until(lambda: "new" in world.running())
    assert list(world.running()) == ["new"]
    assert [s.row.uid for s in world.runtime.sandboxes.values()] == [OTHER_UID]


async def test_a_container_whose_definition_changed_is_replaced_in_its_pod(
    world: PodWorld,
) -> None:
    world.runtime.images_to_pull.add("localhost/busybox:2")
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    first = world.running()["app"]
    newer = Container.from_wire(container_data("app", image="localhost/busybox:2"))
    world.source.set(changed(pod(), newer))
    await world.until(lambda: world.running().get("app", first) != first)
    assert len(world.runtime.sandboxes) == 1
    assert world.made("app").spec.image == "localhost/busybox:2"


@pytest.mark.parametrize("key", ["io.kubernetes.container.hash", "orch.io/container.hash"])
async def test_a_container_of_an_agent_before_this_one_is_left_alone(
    world: PodWorld, key: str
) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    before = world.running()
    await world.stop()
    made = world.made("app")
    row = made.detail.container
    digest = row.annotations["io.kubernetes.container.hash"]
    made.detail = replace(made.detail, container=replace(row, annotations={key: digest}))
    heir = world.successor()
    await heir.start(pod())
    await asyncio.sleep(30)
    assert heir.running() == before


async def test_a_definition_that_the_runtime_restores_again_and_again_is_backed_off(
    world: PodWorld,
) -> None:
    create = world.runtime.create_container

    async def restore(sandbox_id: str, spec: ContainerSpec, sandbox: SandboxSpec) -> str:
        annotations = {**spec.annotations, "io.kubernetes.container.hash": "of the checkpoint"}
        return await create(sandbox_id, replace(spec, annotations=annotations), sandbox)

    world.runtime.create_container = restore  # type: ignore[method-assign]
    await world.start(pod())
    await asyncio.sleep(100)
    assert 3 < len(world.runtime.called("create_container")) < 13


async def test_a_deleted_api_pod_is_stopped_removed_and_then_reported(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    deleted = pod(metadata={"deletionTimestamp": "2026-01-31T12:00:00Z"})
    world.source.set(deleted)
    await world.until(lambda: bool(world.removed))
    assert not world.traces()
    assert world.removed[0].metadata.uid == UID
    await asyncio.sleep(30)
    assert len(world.removed) == 1, "its source still has it, and it must not start again"
    assert not world.traces()


DELETED = {"deletionTimestamp": "2026-01-31T12:00:00Z", "finalizers": ["example.org/wait"]}
ABSENT = {"image": "localhost/absent:1", "imagePullPolicy": "Never"}


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
async def test_a_deleted_pod_that_a_finalizer_holds_shows_its_end_for_good(
    world: PodWorld, policy: str, code: int, phase: str
) -> None:
    world.runtime.code_of_stopped = code
    shown: list[str | None] = []
    world.registry.on_status(lambda _uid: shown.append(world.status().status.phase))
    await world.start(pod(restartPolicy=policy))
    await world.until(lambda: world.status().status.phase == "Running")
    shown.clear()
    world.source.set(pod(restartPolicy=policy, metadata=DELETED))
    await world.until(lambda: bool(world.removed))
    await asyncio.sleep(30)
    ended = world.state().terminated
    assert ended and (ended.exitCode, ended.containerID is not None) == (code, True)
    assert world.status().status.podIP == "10.88.0.3"
    assert set(shown) == {phase}
    stored = pod(restartPolicy=policy, metadata=DELETED, status=world.status().status.to_wire())
    await world.stop()
    heir = world.successor()
    await heir.start(stored)
    await heir.until(lambda: bool(heir.removed))
    assert heir.status().status == stored.status


@pytest.mark.parametrize(
    ("wanted", "waits"),
    [
        (pod(container_data("app", **ABSENT)), "ErrImageNeverPull"),
        (pod(initContainers=[container_data("i", **ABSENT)]), "PodInitializing"),
        (pod(volumes=[{"name": "v", "configMap": {"name": "absent"}}]), "ContainerCreating"),
    ],
    ids=["image", "init", "volume"],
)
async def test_a_pod_deleted_before_it_ran_has_failed(
    world: PodWorld, wanted: Pod, waits: str
) -> None:
    await world.start(wanted)
    await world.until(lambda: world.waiting() == waits)
    metadata = wanted.metadata.model_copy(update=DELETED)
    world.source.set(wanted.model_copy(update={"metadata": metadata}))
    await world.until(lambda: bool(world.removed))
    assert world.status().status.phase == "Failed"
    ended = world.state().terminated
    assert (ended and ended.exitCode) == (None if waits == "PodInitializing" else 137)


async def test_a_pod_that_comes_back_while_it_ends_is_restarted_once_and_counts_it(
    world: PodWorld,
) -> None:
    wanted = pod("a", initContainers=[container_data("s", restartPolicy="Always")])
    await world.start(wanted)
    await world.until(lambda: world.status().status.phase == "Running")
    sandboxes = set(world.runtime.sandboxes)
    held = world.runtime.hold("stop_container")
    world.source.set()
    await held.reached.wait()
    world.source.set(wanted)
    phases: set[str | None] = set()
    world.registry.on_status(lambda _uid: phases.add(world.status().status.phase))
    await asyncio.sleep(1)
    held.release()
    await world.until(
        lambda: len(world.running()) == 2 and sandboxes.isdisjoint(world.runtime.sandboxes)
    )
    await asyncio.sleep(30)
    status = world.status().status
    shown = (*(status.initContainerStatuses or ()), *(status.containerStatuses or ()))
    assert [one.restartCount for one in shown] == [1, 1]
    assert phases <= {"Pending", "Running"}
    world.runtime.exit(world.running()["a"], 1)
    await world.until(lambda: world.made("a").spec.attempt == 2)


async def test_a_second_deletion_with_less_grace_is_obeyed(world: PodWorld) -> None:
    await world.start(pod(terminationGracePeriodSeconds=600))
    await world.until(lambda: "app" in world.running())
    held = world.runtime.hold("stop_container")
    for grace_s in (600, 5):
        metadata = {**DELETED, "deletionGracePeriodSeconds": grace_s}
        world.source.set(pod(terminationGracePeriodSeconds=600, metadata=metadata))
        await held.reached.wait()
    await world.until(lambda: bool(world.removed))
    assert len(world.runtime.called("stop_container")) == 2
    held.release()


async def test_pods_nobody_wants_are_removed_once_every_source_was_read(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    await world.stop()
    slow = FakeSource(name="api", ready=False)
    world.use(FakeSource(), slow)
    await world.start()
    await asyncio.sleep(60)
    assert "app" in world.running(), "the second source may still want it"
    slow.ready = True
    slow.tell()
    await world.until(lambda: not world.traces())


async def test_a_source_that_could_not_read_everything_protects_its_pods(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    await world.stop()
    incomplete = FakeSource()
    incomplete.incomplete = True
    world.use(incomplete)
    await world.start()
    await asyncio.sleep(60)
    assert "app" in world.running()
    incomplete.incomplete = False
    await world.until(lambda: not world.traces())


async def test_directories_of_pods_long_gone_are_removed_at_the_start(world: PodWorld) -> None:
    (world.directory / "root/pods/old-uid/volumes/empty-dir/x").mkdir(parents=True)
    (world.directory / "logs/default_old_old-uid/app").mkdir(parents=True)
    await world.start()
    await world.until(lambda: not world.traces())


async def test_a_present_image_is_not_pulled(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    assert not world.runtime.called("pull_image")


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [("Never", 0, "Succeeded"), ("Never", 3, "Failed"), ("OnFailure", 0, "Succeeded")],
)
async def test_a_pod_that_ends_is_final_and_frees_its_sandbox(
    world: PodWorld, policy: str, code: int, phase: str
) -> None:
    await world.start(pod(restartPolicy=policy))
    await world.until(lambda: "app" in world.running())
    world.runtime.exit(world.running()["app"], code)
    await world.until(lambda: world.status().status.phase == phase)
    await world.until(lambda: not world.registry.targets())
    await asyncio.sleep(100)
    assert len(world.runtime.containers) == 1
    ended = world.state().terminated
    assert ended and ended.exitCode == code


async def test_init_containers_run_in_order_before_the_others(world: PodWorld) -> None:
    inits = [container_data("i1"), container_data("i2")]
    await world.start(pod(initContainers=inits))
    for name in ("i1", "i2"):
        await world.until(lambda name=name: name in world.running())  # type: ignore[misc]
        await asyncio.sleep(5)
        assert list(world.running()) == [name]
        assert world.waiting() == "PodInitializing"
        world.runtime.exit(world.running()[name])
    await world.until(lambda: list(world.running()) == ["app"])
    await world.until(lambda: world.status().status.phase == "Running")


async def test_a_dead_sandbox_is_replaced_with_its_containers(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    await world.runtime.stop_sandbox(next(iter(world.runtime.sandboxes)))
    await world.until(lambda: "app" in world.running())
    assert world.made("app").spec.attempt == 1
    newest = max(world.runtime.sandboxes.values(), key=lambda s: s.row.attempt)
    assert newest.row.attempt == 1


async def test_remove_all_takes_every_pod_and_the_cgroup_along(world: PodWorld) -> None:
    await world.start(pod(), named(pod("b"), "other", OTHER_UID))
    await world.until(lambda: len(world.running()) == 2)
    await world.stop()
    await world.workers.remove_all(30)
    assert not world.traces()
    assert not list(world.directory.glob("cgroup/*/orchpods"))
    assert world.status().status.phase == "Running", "the next agent starts it again"


async def test_remove_all_gives_up_in_time_and_names_what_is_left(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    await world.stop()
    held = world.runtime.hold("stop_container")
    began_s = asyncio.get_running_loop().time()
    await world.workers.remove_all(10)
    assert 10 <= asyncio.get_running_loop().time() - began_s < 20
    held.release()
    assert "pods not removed within 10 s: default/web" in caplog.text


async def test_remove_all_says_that_a_runtime_which_never_answered_names_no_pods(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.runtime.fail("list_sandboxes", RuntimeUnavailable("list_sandboxes", "no such file"))
    began_s = asyncio.get_running_loop().time()
    await world.workers.remove_all(10)
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(3, abs=0.5)
    assert "not removed within 3 s: the runtime does not tell which there are" in caplog.text


async def test_remove_all_waits_for_a_runtime_that_has_answered_before(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    await world.stop()
    world.runtime.fail("list_sandboxes", RuntimeUnavailable("list_sandboxes", "restarting"))
    removing = loops.spawn(world.workers.remove_all(30), name="remove all")
    await asyncio.sleep(8)
    world.runtime.heal("list_sandboxes")
    await removing
    assert not world.traces()


async def test_a_second_pod_of_a_name_is_refused_and_said(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    second: Pod = named(pod("b"), "web", OTHER_UID)
    await world.start(pod("a"), second)
    await world.until(lambda: "a" in world.running())
    await asyncio.sleep(30)
    assert list(world.running()) == ["a"]
    assert caplog.text.count("has the same name") == 1


async def test_pods_of_another_nodes_agent_are_left_alone(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    await world.stop()
    for fake in world.runtime.sandboxes.values():
        fake.row.labels["orch.io/node.name"] = "node2"  # type: ignore[index]
    for held in world.runtime.containers.values():
        held.detail.container.labels["orch.io/node.name"] = "node2"  # type: ignore[index]
    world.use(FakeSource())
    await world.start()
    await asyncio.sleep(30)
    assert "app" in world.running()


async def test_nothing_blocks_the_loop(world: PodWorld, no_blocking: object) -> None:
    volumes = [{"name": "scratch", "emptyDir": {}}]
    mounts = [{"name": "scratch", "mountPath": "/scratch", "subPath": "a/b"}]
    world.services.volumes = VolumeStore(world.settings.root_dir, FakeMounts())
    profile = {"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}}
    container = container_data("app", volumeMounts=mounts, securityContext=profile)
    await world.start(pod(container, volumes=volumes))
    await world.until(lambda: world.waiting() == "CreateContainerError")
    await asyncio.to_thread(world.seccomp_root.mkdir, parents=True)
    await asyncio.to_thread((world.seccomp_root / "p.json").write_text, "{}")
    await world.until(lambda: "app" in world.running())
    for _ in range(4):
        world.runtime.exit(world.running()["app"], 1)
        await world.until(lambda: "app" in world.running(), within_s=60)
    world.source.set()
    await world.until(lambda: not world.runtime.sandboxes)
    await asyncio.sleep(5)
