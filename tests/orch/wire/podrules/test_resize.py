"""Resizes of pods: K:pkg/apis/core/validation/validation_test.go, TestValidatePodResize."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from orch.wire.podrules import resize


def sized(cpu: str = "", memory: str = "", cpu_limit: str = "", memory_limit: str = "") -> Any:
    requests = {"cpu": cpu, "memory": memory}
    limits = {"cpu": cpu_limit, "memory": memory_limit}
    parts = {"requests": requests, "limits": limits}
    return {part: {k: v for k, v in named.items() if v} for part, named in parts.items()}


def container(name: str = "c", resources: Any = None, **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": resources or sized("1", "1Gi"), **fields}


def pod(*containers: Any, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [*containers], **spec}}


def problems(new: Any, old: Any) -> list[tuple[str, str]]:
    return [(cause.field, cause.message) for cause in resize.resize_causes(new, old)]


@pytest.mark.parametrize(
    ("resources", "field", "message"),
    [
        (sized("2", "512Mi"), "", ""),
        (sized("1", "1Gi", "2", "2Gi"), "", ""),  # limits added
        (sized("1"), "spec.containers[0].resources.requests", "requests cannot be removed"),
        (sized("3", "1Gi", "2"), "spec.containers[0].resources.requests", "less than or equal"),
        (sized("-1", "1Gi"), "spec.containers[0].resources.requests[cpu]", "greater than"),
        (
            {"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}},
            "spec",
            "only cpu and memory resources are mutable",
        ),
    ],
)
def test_cpu_and_memory_change_and_nothing_else(resources, field, message) -> None:
    found = problems(pod(container(resources=resources)), pod(container()))
    assert [name for name, _ in found] == [field][: bool(field)]
    assert all(message in text for _, text in found)


def test_the_same_amount_in_other_words_is_no_change_of_another_resource() -> None:
    disk = {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}
    same = {"requests": {"cpu": "2", "ephemeral-storage": "1024Mi"}}
    assert problems(pod(container(resources=same)), pod(container(resources=disk))) == []


def test_the_policy_of_resizing_does_not_change() -> None:
    new = pod(container(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}]))
    assert problems(new, pod(container())) == [
        ("spec", "Forbidden: only cpu and memory resources are mutable")
    ]


@pytest.mark.parametrize(
    ("names", "field", "message"),
    [
        (["c"], "spec.containers", "containers may not be added or removed on resize"),
        (
            ["d", "c"],
            "spec.containers[0].name",
            "containers may not be renamed or reordered on resize",
        ),
    ],
)
def test_containers_stay_what_and_where_they_are(names, field, message) -> None:
    old = pod(container("c"), container("d"))
    new = copy.deepcopy(old)
    new["spec"] = resize.sized_spec(pod(*map(container, names))["spec"], old["spec"])
    assert problems(new, old)[0] == (field, f"Forbidden: {message}")


def test_only_sizes_are_taken_of_what_is_sent() -> None:
    old = pod(container(), nodeName="n", tolerations=[])["spec"]
    sent = pod(container(resources=sized("2", "2Gi"), command=["x"]), hostNetwork=True)["spec"]
    assert resize.sized_spec(sent, old) == {
        **old,
        "containers": [container(resources=sized("2", "2Gi"))],
    }


def test_sidecars_and_init_containers_are_resized_without_restart() -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    sidecar = container("s", restartPolicy="Always", resizePolicy=policy)
    init = container("i")
    old = pod(container(), initContainers=[sidecar, init])
    new = copy.deepcopy(old)
    for each in new["spec"]["initContainers"]:
        each["resources"] = sized("2", "2Gi")
    assert problems(new, old) == []
    for each in (old, new):
        each["spec"]["initContainers"][1]["resizePolicy"] = policy
    [(field, message)] = problems(new, old)
    assert field == "spec.initContainers[1]"
    assert "a resize policy of RestartContainer cannot be resized" in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {"annotations": {"orch.io/config.mirror": "x"}}}, "static pods cannot"),
        ({"os": {"name": "windows"}}, "windows pods cannot"),
        (
            {"status": {"containerStatuses": [{"name": "c", "state": {"running": {}}}]}},
            "Pod running on node without support for resize",
        ),
    ],
)
def test_some_pods_are_not_resized(change, message) -> None:
    old = pod(container())
    for name, value in change.items():
        (old["spec"] if name == "os" else old)[name] = value
    new = {**old, "spec": {**old["spec"], "containers": [container(resources=sized("2", "1Gi"))]}}
    assert any(message in text for _, text in problems(new, old))


def test_a_pod_as_a_whole_is_resized_within_its_containers() -> None:
    old = pod(container(resources=sized("1", "", "1")), resources=sized("2", "", "2"))
    grown = {**old, "spec": {**old["spec"], "resources": sized("3", "", "3")}}
    assert problems(grown, old) == []
    shrunk = {**old, "spec": {**old["spec"], "resources": sized("500m", "", "700m")}}
    assert problems(shrunk, old) == [
        (
            "spec.resources.requests[cpu]",
            'Invalid value: "500m": must be greater than or equal to aggregate container requests'
            " of 1",
        ),
        (
            "spec.resources.containers[0][cpu].limits",
            'Invalid value: "1": must be less than or equal to pod limits of 700m',
        ),
    ]
    gone = {**old, "spec": {"containers": old["spec"]["containers"]}}
    assert problems(gone, old)[0][1] == "Forbidden: pod-level resources cannot be removed"
