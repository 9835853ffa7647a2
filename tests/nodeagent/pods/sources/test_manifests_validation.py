"""Validation of static pods: all the rules of any pod, and more."""

from __future__ import annotations

from typing import Any

import pytest

from nodeagent.pods.sources import manifests
from tests.fakes.pods import container_data, pod

VOLUMES = [{"name": "v", "emptyDir": {}}]


def problems(metadata: dict[str, Any] | None = None, **spec: Any) -> list[tuple[str, str]]:
    containers = spec.pop("containers", [container_data("app")])
    made = pod(*containers, metadata=metadata or {}, **spec)
    if not containers:
        made.spec.containers.clear()
    return list(manifests.problems(made))


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


def test_an_empty_choice_is_none_made() -> None:
    ports = [{"containerPort": 80, "protocol": ""}]
    assert problems(containers=[container_data("app", imagePullPolicy="", ports=ports)]) == []


def mount(**fields: str) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "v", "mountPath": "/v", **fields}]}


APP = "spec.containers[0]"
CONTAINERS: list[tuple[dict[str, Any], str, str]] = [
    ({"image": " "}, "image", "must not have leading or trailing whitespace"),
    ({"livenessProbe": {}}, "livenessProbe", "must specify a handler type"),
    ({"ports": [{"containerPort": 1, "name": "a_b"}]}, "ports[0].name", "must contain only"),
    (
        {"securityContext": {"seccompProfile": {"type": "Nope"}}},
        "securityContext.seccompProfile.type",
        'Unsupported value: "Nope"',
    ),
    (mount(name="none"), "volumeMounts[0].name", 'Not found: "none"'),
    (mount(mountPath="v"), "volumeMounts[0].mountPath", "must be an absolute path"),
    (mount(mountPath="/a:b"), "volumeMounts[0].mountPath", "without ':'"),
    (mount(subPath="/a"), "volumeMounts.subPath", "must be a relative path"),
    (mount(subPath="a/../../b"), "volumeMounts.subPath", "must not contain '..'"),
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
    ({"containers": []}, "spec.containers", "Required value"),
    (
        {"initContainers": [container_data("app")]},
        "spec.initContainers[0].name",
        'Duplicate value: "app"',
    ),
    ({"nodeName": "Node1"}, "", ""),
    ({"dnsPolicy": "None such"}, "spec.dnsPolicy", "Unsupported value"),
    ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "must be between 1"),
    ({"schedulingGates": [{"name": "g"}], "nodeName": "n"}, "spec.nodeName", "cannot be set until"),
    (
        {"ephemeralContainers": [container_data("e")]},
        "spec.ephemeralContainers",
        "cannot be set on create",
    ),
    ({"serviceAccountName": "robot"}, "spec.serviceAccountName", "refer to a ServiceAccount"),
    (
        {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
        "spec.volumes[0]",
        "cannot refer to a Secret",
    ),
    (
        {"imagePullSecrets": [{"name": "s"}]},
        "spec.imagePullSecrets[0]",
        "cannot refer to a Secret",
    ),
]


@pytest.mark.parametrize(("fields", "place", "text"), PODS)
def test_a_pods_mistake_is_named_with_its_place(
    fields: dict[str, Any], place: str, text: str
) -> None:
    found = problems(**fields) or [("", "")]
    assert [path for path, _ in found] == [place]
    assert text in found[0][1]


def test_every_mistake_is_told_in_the_order_of_the_fields() -> None:
    found = problems({"name": "Web"}, containers=[container_data("app", image="")],
                     volumes=[*VOLUMES, *VOLUMES])  # fmt: skip
    assert [path for path, _ in found] == ["metadata.name", "spec.volumes[1].name", f"{APP}.image"]
