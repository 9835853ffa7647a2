"""Pull secrets of pods, read from an API in memory and used on a runtime in memory."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from nodeagent.pods.spec import spec
from nodeagent.runtime.base import ContainerSpec, Login
from orch.client.transport import TransportError
from orch.component.secret import Secret as Hidden
from orch.wire.podrules.references import PULL_SECRETS
from orch.wire.records.configuration import Secret
from orch.wire.records.meta import ObjectMeta
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

pytestmark = pytest.mark.looptime

IMAGE = "registry.example.com/team/app:1"
LOGIN = Login("me", Hidden("s3cret"))


def pull_secret(name: str = "pull", content: str = "") -> Secret:
    auths = {"registry.example.com": {"username": "me", "password": "s3cret"}}
    written = content or json.dumps({"auths": auths})
    return Secret(
        metadata=ObjectMeta(name=name, namespace="default"),
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": base64.b64encode(written.encode()).decode()},
    )


def pulling(*names: str) -> Pod:
    secrets = [{"name": name} for name in names]
    return pod(container_data("app", image=IMAGE), imagePullSecrets=secrets)


def registry(world: PodWorld) -> None:
    """Make a registry have the image for those who log in."""
    world.runtime.images_to_pull.add(IMAGE)
    world.runtime.wanted[IMAGE] = LOGIN


async def test_what_is_the_pod_s_is_labelled_and_what_is_the_host_s_is_not(
    world: PodWorld, tmp_path: Path
) -> None:
    volumes = [
        {"name": "own", "emptyDir": {}},
        {"name": "host", "hostPath": {"path": str(tmp_path)}},
    ]
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("own", "host")]
    container = container_data("app", volumeMounts=mounts, stdin=True, stdinOnce=True)
    await world.start(pod(container, volumes=volumes))
    await world.until(lambda: "app" in world.running())
    [made] = world.runtime.containers.values()
    labelled = {mount.container_path: mount.selinux_relabel for mount in made.spec.mounts}
    assert (labelled["/own"], labelled["/host"], labelled["/etc/hosts"]) == (True, False, True)
    assert made.spec.stdin_once


async def test_an_image_is_pulled_with_the_pod_s_secret_and_missing_ones_are_told(
    world: PodWorld, caplog: pytest.LogCaptureFixture
) -> None:
    registry(world)
    await world.api.create(pull_secret())
    await world.start(pulling("gone", "", "pull", "lost"))
    await world.until(lambda: "app" in world.running())
    assert world.runtime.logins == [LOGIN]
    told = [text for _, reason, text in world.events if reason == "FailedToRetrieveImagePullSecret"]
    assert told == [
        "Unable to retrieve some image pull secrets (gone, lost);"
        " attempting to pull the image may not succeed."
    ]
    assert "s3cret" not in f"{world.events} {caplog.text} {world.status().to_wire()}"


async def test_without_secrets_that_fit_the_registry_is_told_no_user(world: PodWorld) -> None:
    registry(world)
    await world.start(pulling("pull"))
    await world.until(lambda: world.waiting() == "ErrImagePull")
    assert world.runtime.logins == [None]
    await world.api.create(pull_secret())
    await world.until(lambda: "app" in world.running())
    assert world.runtime.logins == [None, LOGIN]


async def test_a_secret_that_cannot_be_understood_keeps_the_image_from_being_pulled(
    world: PodWorld,
) -> None:
    registry(world)
    await world.api.create(pull_secret(content="{s3cret"))
    await world.start(pulling("pull"))
    await world.until(lambda: world.waiting() == "ErrImagePull")
    waiting = world.state().waiting
    assert waiting and waiting.message == 'secret "pull": .dockerconfigjson is not JSON'
    assert world.runtime.logins == []


async def test_a_pull_secret_of_another_type_is_named(world: PodWorld) -> None:
    registry(world)
    secret = pull_secret("other")
    secret.type = "Opaque"
    await world.api.create(secret)
    await world.api.create(pull_secret())
    await world.start(pulling("other", "pull"))
    await world.until(lambda: "app" in world.running())
    assert [text for _, reason, text in world.events if "PullSecret" in reason] == [
        "Image pull secrets of the wrong type are not used: other;"
        " make them of the type kubernetes.io/dockerconfigjson"
    ]


async def test_of_a_thousand_secrets_no_more_are_read_than_is_said(world: PodWorld) -> None:
    registry(world)
    await world.start(pulling(*(f"s{number}" for number in range(1000))))
    await world.until(lambda: world.waiting() == "ErrImagePull")
    read = [call for call in world.api.calls if call.plural == "secrets"]
    assert len(read) == PULL_SECRETS
    assert "s999" in next(text for _, reason, text in world.events if "PullSecret" in reason)


async def test_of_large_secrets_no_more_is_read_than_a_megabyte(world: PodWorld) -> None:
    registry(world)
    padding = json.dumps({"auths": {}, "padding": "x" * 600_000})
    for name, content in (("a", padding), ("b", padding), ("pull", "")):
        await world.api.create(pull_secret(name, content))
    await world.start(pulling("a", "b", "pull"))
    await world.until(lambda: world.waiting() == "ErrImagePull")
    read = [call.key for call in world.api.calls if (call.verb, call.plural) == ("get", "secrets")]
    assert read == ["default/a", "default/b"]
    assert "(b, pull)" in next(text for _, reason, text in world.events if "PullSecret" in reason)


async def test_an_api_that_does_not_answer_is_not_asked_for_every_secret(world: PodWorld) -> None:
    registry(world)
    world.api.fail(TransportError("refused"), times=float("inf"))
    await world.start(pulling(*(f"s{number}" for number in range(9))))
    await world.until(lambda: world.waiting() == "ErrImagePull")
    assert len([call for call in world.api.calls if call.plural == "secrets"]) == 3


async def test_while_the_api_is_away_the_last_known_secret_counts(world: PodWorld) -> None:
    registry(world)
    await world.api.create(pull_secret())
    await world.start(pulling("pull"))
    await world.until(lambda: "app" in world.running())
    world.api.fail(TransportError("refused"), times=float("inf"))
    world.runtime.images_known.pop(IMAGE)
    world.runtime.crash(world.running()["app"])
    await world.until(lambda: "app" in world.running(), within_s=60)
    assert world.runtime.logins == [LOGIN, LOGIN]
    assert "FailedToRetrieveImagePullSecret" not in world.reasons()


async def test_no_container_is_created_before_its_allocation_is_written_down(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = False

    async def save() -> bool:
        return saved

    monkeypatch.setattr(world.services.allocations, "save", save)
    await world.start(pod(container_data("app")))

    def waiting() -> str | None:
        (status,) = world.status().status.containerStatuses or [None]
        return status and status.state and status.state.waiting and status.state.waiting.reason

    await world.until(lambda: waiting() == "CreateContainerError")
    assert not world.runtime.containers
    saved = True
    await world.until(lambda: "app" in world.running())


async def test_what_a_container_is_to_be_is_worked_out_beside_the_loop(
    world: PodWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 75,000 variables stalled the agent for 92 ms."""
    threads, real = list[threading.Thread](), spec.container_spec

    def recorded(*arguments: Any) -> ContainerSpec:
        threads.append(threading.current_thread())
        return real(*arguments)

    monkeypatch.setattr(spec, "container_spec", recorded)
    await world.start(pod())
    await world.until(lambda: "app" in world.running())
    assert threads and threading.main_thread() not in threads
