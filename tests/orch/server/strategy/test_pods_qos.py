from __future__ import annotations

import pytest

from orch.server.strategy.pods import qos_class

BOTH = {"cpu": "1", "memory": "1Gi"}


def container(**resources):
    return {"resources": resources}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [  # K:pkg/apis/core/v1/helper/qos/qos_test.go
        ([{}], "BestEffort"),
        ([container(limits={}, requests={})], "BestEffort"),
        ([container(requests={"cpu": "0"})], "BestEffort"),
        ([container(limits={"example.com/gpu": "1"})], "BestEffort"),
        ([container(limits=BOTH, requests=BOTH)], "Guaranteed"),
        ([container(limits=BOTH)], "Guaranteed"),
        ([container(limits=BOTH, requests={"cpu": "1000m", "memory": "1024Mi"})], "Guaranteed"),
        ([container(limits=BOTH), {}], "Burstable"),
        ([container(limits={"cpu": "1"})], "Burstable"),
        ([container(requests={"memory": "1Gi"})], "Burstable"),
        ([container(limits=BOTH, requests={"cpu": "500m"})], "Burstable"),
    ],
)
def test_the_class_follows_from_requests_and_limits(containers, expected) -> None:
    assert qos_class({"containers": containers}) == expected


def test_init_containers_count() -> None:
    spec = {"containers": [container(limits=BOTH)], "initContainers": [{}]}
    assert qos_class(spec) == "Burstable"
