"""What an API server would refuse (apis/core/validation), found in pods that never met one."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.pods.sources.validation import pod_problems
from orch.component.yaml_file import show_path
from tests.fakes.pods import container_data, pod

VOLUMES = [{"name": "v", "emptyDir": {}}]


def problems(metadata: dict[str, Any] | None = None, **spec: Any) -> list[tuple[str, str]]:
    containers = spec.pop("containers", [container_data("app")])
    made = pod(*containers, metadata=metadata or {}, **spec)
    if not containers:
        made.spec.containers.clear()
    return [(show_path(path), text) for path, text in pod_problems(made)]


def test_an_ordinary_pod_has_no_problem() -> None:
    full = container_data(
        "app",
        imagePullPolicy="Always",
        ports=[{"containerPort": 65535, "hostPort": 0, "protocol": "UDP"}],
        resources={"limits": {"cpu": "1", "memory": 5}, "requests": {"cpu": "0"}},
        volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "a..b/c"}],
        env=[{"name": "A", "value": "="}],
    )
    init = container_data("init")
    assert problems(containers=[full], initContainers=[init], volumes=VOLUMES,
                    terminationGracePeriodSeconds=0) == []  # fmt: skip


def mount(**fields: str) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "v", "mountPath": "/v", **fields}]}


APP = "spec.containers[0]"
CONTAINERS: list[tuple[dict[str, Any], str, str]] = [
    ({"image": " "}, "image", "an image is needed"),
    ({"imagePullPolicy": "Sometimes"}, "imagePullPolicy", "must be one of Always"),
    ({"ports": [{"containerPort": 0}]}, "ports[0].containerPort", "between 1 and 65535"),
    ({"ports": [{"containerPort": 65536}]}, "ports[0].containerPort", "between 1 and 65535"),
    ({"ports": [{"containerPort": 1, "hostPort": 65536}]}, "ports[0].hostPort", "between 0"),
    ({"ports": [{"containerPort": 1, "protocol": "tcp"}]}, "ports[0].protocol", "one of TCP"),
    ({"resources": {"limits": {"cpu": "-1"}}}, "resources.limits.cpu", "must not be negative"),
    ({"resources": {"requests": {"cpu": "x"}}}, "resources.requests.cpu", "'x' is not a quantity"),
    ({"env": [{"name": ""}]}, "env[0].name", "'' is no variable's name"),
    ({"env": [{"name": "A=B"}]}, "env[0].name", "'A=B' is no variable's name"),
    (mount(name="none"), "volumeMounts[0].name", "'none' is not in spec.volumes"),
    (mount(mountPath="v"), "volumeMounts[0].mountPath", "must be an absolute path"),
    (mount(mountPath="/a:b"), "volumeMounts[0].mountPath", "without ':'"),
    (mount(subPath="/a"), "volumeMounts[0].subPath", "must be relative"),
    (mount(subPath="a/../../b"), "volumeMounts[0].subPath", "without '..'"),
]


@pytest.mark.parametrize(("fields", "place", "text"), CONTAINERS)
def test_a_containers_mistake_is_named_with_its_place(
    fields: dict[str, Any], place: str, text: str
) -> None:
    [(path, message)] = problems(containers=[container_data("app", **fields)], volumes=VOLUMES)
    assert path == f"{APP}.{place}"
    assert text in message


PODS: list[tuple[dict[str, Any], str, str]] = [
    ({"metadata": {"name": "Web"}}, "metadata.name", "'Web'"),
    ({"metadata": {"namespace": "a/b"}}, "metadata.namespace", "'a/b'"),
    ({"metadata": {"uid": "../etc"}}, "metadata.uid", "'../etc' is not a uid"),
    ({"containers": []}, "spec.containers", "at least one container is needed"),
    ({"containers": [container_data("App")]}, f"{APP}.name", "'App'"),
    (
        {"containers": [container_data("a"), container_data("a")]},
        "spec.containers[1].name",
        "twice",
    ),
    ({"initContainers": [container_data("app")]}, f"{APP}.name", "'app' is used twice"),
    ({"volumes": [*VOLUMES, *VOLUMES]}, "spec.volumes[1].name", "'v' is used twice"),
    ({"volumes": [{"name": "V", "emptyDir": {}}]}, "spec.volumes[0].name", "'V'"),
    ({"terminationGracePeriodSeconds": -1}, "spec.terminationGracePeriodSeconds", "negative"),
]


@pytest.mark.parametrize(("fields", "place", "text"), PODS)
def test_a_pods_mistake_is_named_with_its_place(
    fields: dict[str, Any], place: str, text: str
) -> None:
    [(path, message)] = problems(**fields)
    assert path == place
    assert text in message


def test_every_mistake_is_told_in_the_order_of_the_fields() -> None:
    found = problems({"name": "Web"}, containers=[container_data("app", image="")],
                     volumes=[*VOLUMES, *VOLUMES])  # fmt: skip
    assert [path for path, _ in found] == ["metadata.name", "spec.volumes[1].name", f"{APP}.image"]
