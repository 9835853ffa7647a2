"""K:plugin/pkg/admission/podresize/admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from orch.server.admission.pod_resize import PodResize
from orch.server.objects.document import ObjectTarget
from orch.server.strategy import pods
from orch.wire.errors import ApiError
from orch.wire.records.authentication import Identity

TENANT = Identity("tenant")


def pod(cpu: str, memory: str = "1Gi", *, node: str = "n1", generation: int = 2) -> Any:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i", "resources": resources}]}
    return {"metadata": {"name": "p", "generation": generation}, "spec": spec}


def checked(new: Any, node: Any, subresource: str = "resize") -> ApiError | None:
    target = ObjectTarget(pods.STRATEGY, TENANT, "a", "p", subresource)
    try:
        PodResize(lambda _name: node).check(target, new, pod("1", generation=1))
    except ApiError as error:
        return error
    return None


NODE = {"status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}}
WINDOWS = {**NODE, "metadata": {"labels": {"orch.io/os": "windows"}}}


@pytest.mark.parametrize(
    ("new", "node", "why", "cause"),
    [
        (pod("2"), NODE, "", ""),
        (pod("2001m"), NODE, "cpu, requested: 2001, allocatable: 2000", "NodeCapacity"),
        (
            pod("3", "5Gi"),
            NODE,
            "cpu, requested: 3000, allocatable: 2000; memory, requested: 5368709120,"
            " allocatable: 4294967296",
            "NodeCapacity",
        ),
        (pod("2"), None, 'node "n1" not found', ""),
        (pod("2"), WINDOWS, "only supported on linux nodes", "UnsupportedPlatform"),
        (pod("9", node=""), None, "", ""),  # not bound yet: who binds it will see
        (pod("9", generation=1), NODE, "", ""),  # nothing changes
    ],
)
def test_a_resize_must_fit_the_node_at_all(new: Any, node: Any, why: str, cause: str) -> None:
    refused = checked(new, node)
    assert (refused is not None) is bool(why)
    if refused is not None:
        assert refused.code == 403
        assert why in refused.message
        assert [c.reason for c in refused.causes] == [cause][: bool(cause)]


def test_other_changes_of_pods_are_not_judged() -> None:
    assert checked(pod("9"), NODE, "status") is None
