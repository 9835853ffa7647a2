from __future__ import annotations

from typing import Any

import pytest

from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

BOTH = {"cpu": "1", "memory": "1Gi"}


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = ()) -> Pod:
    apps = [{"name": f"c{n}", **one} for n, one in enumerate(containers)]
    inits = [{"name": f"i{n}", **one} for n, one in enumerate(init)]
    return Pod.from_wire({"spec": {"containers": apps, "initContainers": inits}})


def container(**amounts: Any) -> dict[str, Any]:
    return {"resources": amounts}


def cpu(amount: str, **fields: Any) -> dict[str, Any]:
    return container(requests={"cpu": amount}) | fields


def sidecar(amount: str) -> dict[str, Any]:
    return cpu(amount, restartPolicy="Always")


@pytest.mark.parametrize(
    ("asking", "expected"),
    [  # K:pkg/apis/core/v1/helper/qos/qos_test.go
        (pod({}), "BestEffort"),
        (pod({}, {}), "BestEffort"),
        (pod(container(limits={}, requests={})), "BestEffort"),
        (pod(cpu("0")), "BestEffort"),
        (pod(container(limits={"example.com/gpu": 1})), "BestEffort"),
        (pod(container(limits=BOTH, requests=BOTH)), "Guaranteed"),
        (pod(container(limits=BOTH)), "Guaranteed"),
        (pod(container(limits=BOTH), container(limits=BOTH)), "Guaranteed"),
        (
            pod(container(limits=BOTH, requests={"cpu": "1000m", "memory": "1024Mi"})),
            "Guaranteed",
        ),
        (pod(container(limits=BOTH, requests={"cpu": 1})), "Guaranteed"),
        (pod(container(limits=BOTH), {}), "Burstable"),
        (pod(container(limits=BOTH), init=({},)), "Burstable"),
        (pod(container(limits={"cpu": "1"})), "Burstable"),
        (pod(container(requests={"memory": "1Gi"})), "Burstable"),
        (pod(container(requests=BOTH)), "Burstable"),
        (pod(container(limits=BOTH, requests={"cpu": "500m"})), "Burstable"),
        (
            pod(container(limits=BOTH | {"cpu": "100u"}, requests={"cpu": "200u"})),
            "Burstable",
        ),
    ],
)
def test_the_class_follows_from_requests_and_limits(asking: Pod, expected: str) -> None:
    assert podspec.qos_class(asking) == expected


@pytest.mark.parametrize(
    ("asking", "milli"),
    [  # K:component-helpers/resource/helpers_test.go TestPodResourceRequests
        (pod({}), 0),
        (pod(cpu("1"), cpu("500m")), 1500),
        (pod(container(limits={"cpu": "2"})), 2000),
        (pod(cpu("1"), init=(cpu("3"), cpu("2"))), 3000),
        (pod(cpu("1"), init=(cpu("500m"),)), 1000),
        (pod(cpu("1"), init=(sidecar("2"),)), 3000),
        (pod(cpu("1"), init=(sidecar("2"), cpu("5"), sidecar("1"))), 7000),
        (pod(cpu("1"), init=(cpu("5"), sidecar("2"))), 5000),
    ],
)
def test_what_must_be_free_is_what_runs_at_once(asking: Pod, milli: int) -> None:
    assert podspec.requested(asking, "cpu") == milli


def test_amounts_are_counted_as_the_caller_wants() -> None:
    asking = pod(container(limits=BOTH), container(requests={"memory": "1"}))
    assert podspec.requested(asking, "memory", quantity.to_bytes) == 2**30 + 1
    assert podspec.requested(asking, "ephemeral-storage") == 0


def test_the_overhead_of_a_runtime_class_adds_to_requests_and_to_limits_that_there_are() -> None:
    limited = pod(container(limits={"cpu": "1"}, requests={"cpu": "500m"}))
    limited.spec.overhead = {"cpu": "250m", "memory": "64Mi"}
    assert podspec.requested(limited, "cpu") == 750
    assert podspec.limited(limited, "cpu") == 1250
    assert podspec.requested(limited, "memory", quantity.to_bytes) == 64 * 2**20
    assert podspec.limited(limited, "memory", quantity.to_bytes) is None
    assert podspec.qos_class(limited) == "Burstable"
