from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from orch.ctl import describe_node

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
NODE = {
    "metadata": {
        "name": "n1",
        "labels": {"orch.io/os": "linux", "node-role.orch.io/worker": ""},
        "annotations": {"b": "2", "a": "1"},
        "creationTimestamp": "2026-01-31T11:00:00Z",
    },
    "spec": {"unschedulable": True, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"},
                                               {"key": "l", "effect": "NoExecute"}]},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "AgentReady", "message": "all well"}
        ],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "capacity": {"cpu": "2", "pods": "110"},
        "allocatable": {"cpu": "2", "memory": "1Gi"},
        "nodeInfo": {"kernelVersion": "6.1"},
        "declaredFeatures": ["A", "B"],
    },
}  # fmt: skip


def _pod(name: str, *resources: dict[str, Any]) -> dict[str, Any]:
    containers = [{"resources": r} for r in resources]
    return {
        "metadata": {"name": name, "namespace": "d", "creationTimestamp": "2026-01-31T11:59:00Z"},
        "spec": {"containers": containers},
    }


PODS = [
    _pod("web", {"requests": {"cpu": "250m", "memory": "128Mi"}, "limits": {"cpu": 1}}, {}),
    _pod("db", {"requests": {"cpu": "0.25", "memory": "what"}}),
]


def test_a_node_is_described() -> None:
    lease = {"spec": {"holderIdentity": "n1", "renewTime": "2026-01-31T11:59:59.000000Z"}}
    assert describe_node.lines(NODE, lease, PODS, NOW) == [
        "Name:               n1",
        "Roles:              worker",
        "Labels:             node-role.orch.io/worker=",
        "                    orch.io/os=linux",
        "Annotations:        a=1",
        "                    b=2",
        "CreationTimestamp:  2026-01-31T11:00:00Z",
        "Taints:             k=v:NoSchedule",
        "                    l:NoExecute",
        "Unschedulable:      true",
        "Lease:",
        "  HolderIdentity:  n1",
        "  AcquireTime:     <unset>",
        "  RenewTime:       2026-01-31T11:59:59.000000Z",
        "Conditions:",
        "  Type    Status   LastHeartbeatTime   LastTransitionTime   Reason       Message",
        "  ----    ------   -----------------   ------------------   ------       -------",
        "  Ready   True                                              AgentReady   all well",
        "Addresses:",
        "  InternalIP:  10.0.0.1",
        "Capacity:",
        "  cpu:   2",
        "  pods:  110",
        "Allocatable:",
        "  cpu:     2",
        "  memory:  1Gi",
        "System Info:",
        "  kernelVersion:  6.1",
        "Declared Features:  A, B",
        "Non-terminated Pods (2 in total):",
        "  Namespace   Name   CPU Requests   CPU Limits   Memory Requests   Memory Limits   Age",
        "  ---------   ----   ------------   ----------   ---------------   -------------   ---",
        "  d           web    250m           1            128Mi             0               60s",
        "  d           db     250m           0            0                 0               60s",
        "Allocated resources:",
        "  Resource   Requests      Limits",
        "  --------   --------      ------",
        "  cpu        500m (25%)    1 (50%)",
        "  memory     128Mi (12%)   0 (0%)",
    ]


def test_pods_that_may_not_be_listed_are_not_counted_as_none() -> None:
    lines = describe_node.lines(NODE, None, None, NOW)
    assert lines[-2:] == [
        "Declared Features:  A, B",
        "Non-terminated Pods:  they may not be listed",
    ]


@pytest.mark.parametrize("node", [{}, {"status": {"allocatable": {"cpu": "0", "memory": "x"}}}])
def test_a_node_that_reports_nothing_is_still_described(node: dict[str, Any]) -> None:
    lines = describe_node.lines(node, None, [], NOW)
    assert "Lease:  none, or it may not be read" in lines
    assert "Capacity:  <none>" in lines
    assert lines[-2:] == ["  cpu        0          0", "  memory     0          0"]
