"""The resources in a status: K:pkg/kubelet/kubelet_pods_test.go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.pods.decide import resources
from nodeagent.pods.resize.sizes import InForce, Size
from nodeagent.runtime.base import LinuxResources
from orch.wire.records.pods import Container
from tests.fakes.pods import container_data, exited, instance, pod

MI = 1 << 20


def shown(granted: Any, told: LinuxResources | None, size: Size, *, runs: bool = True) -> Any:
    container = Container.from_wire(container_data("app", resources=granted))
    detail = replace(instance("app") if runs else exited("app"), resources=told)
    found = resources.in_container(container, detail, InForce(None, {"app0": size}))
    return found.to_wire()


BOTH = {
    "requests": {"cpu": "250m", "memory": "32Mi"},
    "limits": {"cpu": "0.5", "memory": "64Mi"},
}


@pytest.mark.parametrize(
    ("granted", "told", "size", "expected"),
    [
        (BOTH, LinuxResources(256, 50_000, 100_000, 64 * MI), Size(250, 500, 32 * MI), BOTH),
        (
            BOTH,
            LinuxResources(102, 20_000, 100_000, 128 * MI),
            Size(100, 200, 16 * MI, 128 * MI),
            {
                "requests": {"cpu": "100m", "memory": "16Mi"},
                "limits": {"cpu": "200m", "memory": "128Mi"},
            },
        ),
        # A kernel cannot tell these apart.
        (
            {"requests": {"cpu": "1m"}, "limits": {"cpu": "5m"}},
            LinuxResources(2, 1000, 100_000),
            Size(1, 5),
            {"requests": {"cpu": "1m"}, "limits": {"cpu": "5m"}},
        ),
        ({}, LinuxResources(2), Size(), {}),
        (BOTH, None, Size(250, 500, 32 * MI, 64 * MI), BOTH),  # a runtime that does not say
    ],
)
def test_a_running_container_shows_what_the_runtime_has(
    granted: Any, told: LinuxResources | None, size: Size, expected: Any
) -> None:
    assert shown(granted, told, size) == expected


def test_one_that_does_not_run_shows_what_it_will_start_with() -> None:
    told = LinuxResources(102, 20_000, 100_000, 128 * MI)
    assert shown(BOTH, told, Size(100, 200), runs=False) == BOTH


def test_a_pod_that_has_resources_as_a_whole_shows_them() -> None:
    containers = (container_data("a", resources=BOTH), container_data("b", resources=BOTH))
    wanted = pod(*containers, resources={"requests": {"cpu": "1"}})
    assert resources.granted_to_pod(wanted) == {"cpu": "1", "memory": "64Mi"}
    assert resources.granted_to_pod(pod(*containers)) is None
    assert resources.of_pod(pod(*containers), InForce()) is None
    found = resources.of_pod(wanted, InForce(Size(100, 200, MI, 2 * MI)))
    assert found is not None
    assert found.to_wire() == {
        "requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"cpu": "200m", "memory": "2Mi"},
    }  # fmt: skip
    assert resources.of_pod(pod("a"), InForce()) is None
