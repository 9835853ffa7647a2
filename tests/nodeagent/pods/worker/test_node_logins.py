"""Images are pulled as whom the node may, too. In real time: the plugin is a process."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from nodeagent.pods.images.node_logins import NodeLogins
from nodeagent.pods.images.plugins import CredentialPlugins
from nodeagent.runtime.base import Login
from orch.component.secret import Secret as Hidden
from orch.wire.records.configuration import Secret
from orch.wire.records.meta import ObjectMeta
from tests.fakes.plugins import answering, program
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld

HOST, IMAGE = "registry.example.com", "registry.example.com/team/app:1"


def logins(user: str) -> str:
    return json.dumps({"auths": {HOST: {"username": user, "password": "p"}}})


def set_file(world: PodWorld) -> None:
    Path(world.settings.root_dir, "config.json").write_text(logins("file"))
    world.services.node_logins = NodeLogins(world.settings.root_dir)


async def test_the_node_s_own_come_after_the_pod_s_and_its_file_before_its_plugins(
    world: PodWorld, tmp_path: Path
) -> None:
    set_file(world)
    answer = {HOST: {"username": "plugin", "password": "p"}}
    plugins = [program(tmp_path / "plugin", answering(answer))]
    world.services.plugins = CredentialPlugins(plugins, world.counts)
    world.runtime.images_to_pull.add(IMAGE)
    world.runtime.wanted[IMAGE] = Login("plugin", Hidden("p"))
    content = base64.b64encode(logins("pod").encode()).decode()
    secret = Secret(
        metadata=ObjectMeta(name="pull", namespace="default"),
        type="kubernetes.io/dockerconfigjson",
        data={".dockerconfigjson": content},
    )
    await world.api.create(secret)
    await world.start(pod(container_data("app", image=IMAGE), imagePullSecrets=[{"name": "pull"}]))
    await world.until(lambda: "app" in world.running(), within_s=120)
    assert [login and login.user for login in world.runtime.logins] == ["pod", "file", "plugin"]


async def test_the_node_s_file_is_for_pods_without_secrets(world: PodWorld) -> None:
    set_file(world)
    world.runtime.images_to_pull.add(IMAGE)
    world.runtime.wanted[IMAGE] = Login("file", Hidden("p"))
    await world.start(pod(container_data("app", image=IMAGE)))
    await world.until(lambda: "app" in world.running(), within_s=120)
    assert [login and login.user for login in world.runtime.logins] == ["file"]
