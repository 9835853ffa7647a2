"""Steps of pods that fail or hang are shown, tried again, and hold up no other pod."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from nodeagent.pods.volumes.volumes import VolumeStore
from nodeagent.runtime.base import RuntimeCallError, RuntimeUnavailable
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld, named

pytestmark = pytest.mark.looptime

OTHER_UID = "99999999-2222-3333-4444-555555555555"


async def test_a_disk_that_cannot_be_listed_keeps_no_pod_from_running_and_is_tried_again(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (world.directory / "root/pods/old-uid").mkdir(parents=True)
    broken, uids = True, VolumeStore.uids

    async def listed(store: VolumeStore) -> list[str]:
        if broken:
            raise OSError(5, "Input/output error", "root/pods")
        return await uids(store)

    monkeypatch.setattr(VolumeStore, "uids", listed)
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    await asyncio.sleep(30)
    assert caplog.text.count("cannot look for leftovers of former pods") == 1
    broken = False
    await world.until(lambda: not (world.directory / "root/pods/old-uid").exists())


async def test_a_hanging_pod_does_not_hold_up_the_others(world: PodWorld) -> None:
    hold = world.runtime.hold("run_sandbox")
    await world.start(pod())
    await hold.reached.wait()
    world.source.set(pod(), named(pod("b"), "other", OTHER_UID))
    await world.until(lambda: "b" in world.running())
    hold.release()


async def test_removing_a_pod_interrupts_a_pull_that_hangs(world: PodWorld) -> None:
    hold = world.runtime.hold("pull_image")
    await world.start(pod(container_data("app", image="localhost/big:latest")))
    await hold.reached.wait()
    world.source.set()
    await world.until(lambda: not world.traces())


async def test_a_failing_pull_backs_off_and_is_shown(world: PodWorld) -> None:
    await world.start(pod(container_data("app", image="localhost/later:1")))
    await world.until(lambda: world.waiting() == "ErrImagePull")
    await world.until(lambda: world.waiting() == "ImagePullBackOff")
    assert len(world.runtime.called("pull_image")) == 1
    await asyncio.sleep(100)
    assert len(world.runtime.called("pull_image")) == 4  # after 10, 20 and 40 s
    world.runtime.images_to_pull.add("localhost/later:1")
    await world.until(lambda: "app" in world.running(), within_s=300)


async def test_an_absent_image_is_not_pulled_with_policy_never(world: PodWorld) -> None:
    await world.start(
        pod(container_data("app", image="localhost/absent:1", imagePullPolicy="Never"))
    )
    await world.until(lambda: world.waiting() == "ErrImageNeverPull")
    assert not world.runtime.called("pull_image")


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ("create_container", "CreateContainerError"),
        ("start_container", "RunContainerError"),
        ("run_sandbox", "ContainerCreating"),
    ],
)
async def test_a_refused_call_is_a_waiting_reason_and_is_tried_again(
    world: PodWorld, operation: str, reason: str
) -> None:
    world.runtime.fail(operation, "the runtime says no", times=2)
    await world.start(pod())
    await world.until(lambda: "the runtime says no" in message(world))
    assert world.waiting() == reason
    await world.until(lambda: "app" in world.running(), within_s=60)


def message(world: PodWorld) -> str:
    waiting = world.state().waiting
    return (waiting.message or "") if waiting else ""


async def test_one_failing_container_does_not_stop_its_pod(world: PodWorld) -> None:
    await world.start(pod(container_data("bad", image="localhost/absent:1"), "good"))
    await world.until(lambda: "good" in world.running())
    assert world.waiting("bad") in ("ErrImagePull", "ImagePullBackOff")
    assert world.status().status.phase == "Pending"


async def test_a_runtime_that_is_away_is_waited_for(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    away = RuntimeUnavailable("any", "connection refused")
    for operation in ("list_sandboxes", "create_container", "run_sandbox", "stop_container"):
        world.runtime.fail(operation, away)
    world.source.set(pod(), named(pod("b"), "other", OTHER_UID))
    await asyncio.sleep(300)
    assert list(world.running()) == ["app"]
    for operation in ("list_sandboxes", "create_container", "run_sandbox", "stop_container"):
        world.runtime.heal(operation)
    await world.until(lambda: "b" in world.running(), within_s=15)


async def test_a_missing_localhost_profile_is_waited_for(world: PodWorld) -> None:
    profile = {"seccompProfile": {"type": "Localhost", "localhostProfile": "deny.json"}}
    await world.start(pod(container_data("app", securityContext=profile)))
    await world.until(lambda: world.waiting() == "CreateContainerError")
    assert str(world.seccomp_root / "deny.json") in message(world)
    world.seccomp_root.mkdir(parents=True)
    (world.seccomp_root / "deny.json").write_text("{}")
    await world.until(lambda: "app" in world.running(), within_s=8)
    assert world.made("app").spec.seccomp.localhost_path == str(world.seccomp_root / "deny.json")


async def test_an_error_nobody_expected_is_logged_and_the_pod_tried_again(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.runtime.fail("create_container", ZeroDivisionError("a bug"), times=1)
    await world.start(pod())
    await world.until(lambda: "app" in world.running(), within_s=60)
    assert "unexpected error" in caplog.text


async def test_a_lost_answer_does_not_make_a_second_container(world: PodWorld) -> None:
    """The runtime made the container, and the answer never came."""
    original = world.runtime.create_container

    async def lose_answer(*arguments: object) -> str:
        await original(*arguments)  # type: ignore[arg-type]
        world.runtime.create_container = original  # type: ignore[method-assign]
        raise RuntimeCallError("create_container", "deadline exceeded")

    world.runtime.create_container = lose_answer  # type: ignore[method-assign,assignment]
    await world.start(pod())
    await world.until(lambda: "app" in world.running(), within_s=60)
    assert len(world.runtime.containers) == 1


NONROOT = {"runAsNonRoot": True}
IMAGE = "localhost/busybox:1"


async def test_an_image_of_root_is_not_started_where_root_is_forbidden(world: PodWorld) -> None:
    await world.start(pod(securityContext=NONROOT))
    await world.until(lambda: world.waiting() == "CreateContainerConfigError")
    waiting = world.state().waiting
    assert waiting and "container has runAsNonRoot and image will run as root" in (
        waiting.message or ""
    )
    assert not world.runtime.containers
    known = world.runtime.images_known
    known[IMAGE] = replace(known[IMAGE], uid=1000)
    await world.until(lambda: "app" in world.running(), within_s=300)
    assert world.made("app").spec.image == known[IMAGE].id, "its name may move on meanwhile"


async def test_a_runtime_that_does_not_tell_the_images_user_starts_nothing(
    world: PodWorld,
) -> None:
    world.runtime.fail("image", RuntimeCallError("ImageStatus", "broken"))
    await world.start(pod(container_data("app", imagePullPolicy="Always"), securityContext=NONROOT))
    await world.until(lambda: world.waiting() == "CreateContainerConfigError")
    assert not world.runtime.containers


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"hostUsers": False, "hostPID": True}, "spec.hostPID: Forbidden"),
        ({"hostUsers": False}, "can't set `spec.hostUsers: false`, runtime does not support"),
        ({"runtimeClassName": "gvisor"}, "failed to get RuntimeClass gvisor: "),
        ({"securityContext": {"seLinuxOptions": {"lvl": "s0"}}}, "seLinuxOptions.lvl: Forbidden"),
    ],
)
async def test_no_sandbox_is_made_that_isolates_less_than_asked(
    world: PodWorld, fields: dict[str, object], path: str
) -> None:
    await world.start(pod(**fields))
    await world.until(lambda: "FailedCreatePodSandBox" in world.reasons())
    assert any(path in message for _, _, message in world.events)
    assert not world.runtime.sandboxes


async def test_a_container_added_later_is_checked_as_well(world: PodWorld) -> None:
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    unmasked = container_data("debug", securityContext={"procMount": "Unmasked"})
    world.source.set(pod(ephemeralContainers=[unmasked]))
    await world.until(
        lambda: any("securityContext.procMount" in message for _, _, message in world.events)
    )
    assert "debug" not in world.running()
