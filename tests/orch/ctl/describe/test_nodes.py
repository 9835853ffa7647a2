from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from orch.ctl.describe import nodes
from orch.ctl.describe.tab_writer import TabWriter

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
NODE: dict[str, Any] = {
    "metadata": {
        "name": "n1",
        "labels": {"orch.io/os": "linux", "node-role.orch.io/worker": ""},
        "creationTimestamp": "2026-01-31T11:00:00Z",
    },
    "spec": {"unschedulable": True, "providerID": "rack://7", "podCIDR": "10.1.0.0/24",
             "podCIDRs": ["10.1.0.0/24", "fd00::/64"],
             "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"},
                        {"key": "m", "value": "w"}, {"key": "l", "effect": "NoExecute"}]},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "AgentReady", "message": "all well"}
        ],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "capacity": {"cpu": "2", "pods": "110"},
        "allocatable": {"cpu": "2", "memory": "1024Mi", "pods": "110", "example.com/gpu": "2",
                        "hugepages-2Mi": "4Mi"},
        "nodeInfo": {"kernelVersion": "6.1"},
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
    _pod("db", {"requests": {"cpu": "0.25", "example.com/gpu": 1, "hugepages-2Mi": "1Mi"}}),
]


def _lines(node: dict[str, Any], lease: Any, pods: list[dict[str, Any]] | None) -> list[str]:
    writer = TabWriter()
    nodes.write(writer, node, lease, pods, NOW)
    return writer.text().splitlines()


@pytest.mark.usefixtures("in_tokyo")
def test_a_node_is_described() -> None:
    lease = {"spec": {"holderIdentity": "n1", "renewTime": "2026-01-31T11:59:59.000000Z"}}
    assert _lines(NODE, lease, PODS) == [
        "Name:               n1",
        "Roles:              worker",
        "Labels:             node-role.orch.io/worker=",
        "                    orch.io/os=linux",
        "Annotations:        <none>",
        "CreationTimestamp:  Sat, 31 Jan 2026 20:00:00 +0900",
        "Taints:             m=w:",
        "                    l:NoExecute",
        "                    k=v:NoSchedule",
        "Unschedulable:      true",
        "Lease:",
        "  HolderIdentity:  n1",
        "  AcquireTime:     <unset>",
        "  RenewTime:       Sat, 31 Jan 2026 20:59:59 +0900",
        "Conditions:",
        "  Type    Status  LastHeartbeatTime                 LastTransitionTime                "
        "Reason       Message",
        "  ----    ------  -----------------                 ------------------                "
        "------       -------",
        "  Ready   True    Mon, 01 Jan 0001 00:00:00 +0000   Mon, 01 Jan 0001 00:00:00 +0000   "
        "AgentReady   all well",
        "Addresses:",
        "  InternalIP:  10.0.0.1",
        "Capacity:",
        "  cpu:   2",
        "  pods:  110",
        "Allocatable:",
        "  cpu:              2",
        "  example.com/gpu:  2",
        "  hugepages-2Mi:    4Mi",
        "  memory:           1Gi",
        "  pods:             110",
        "System Info:",
        "  Machine ID:",
        "  System UUID:",
        "  Boot ID:",
        "  Kernel Version:             6.1",
        "  OS Image:",
        "  Operating System:",
        "  Architecture:",
        "  Container Runtime Version:",
        "  Kubelet Version:",
        "PodCIDR:                      10.1.0.0/24",
        "PodCIDRs:                     10.1.0.0/24,fd00::/64",
        "ProviderID:                   rack://7",
        "Non-terminated Pods:          (2 in total)",
        "  Namespace                   Name    CPU Requests  CPU Limits  Memory Requests"
        "  Memory Limits  Age",
        "  ---------                   ----    ------------  ----------  ---------------"
        "  -------------  ---",
        "  d                           web     250m (12%)    1 (50%)     128Mi (12%)    "
        "  0 (0%)         60s",
        "  d                           db      250m (12%)    0 (0%)      0 (0%)         "
        "  0 (0%)         60s",
        "Allocated resources:",
        "  (Total limits may be over 100 percent, i.e., overcommitted.)",
        "  Resource           Requests     Limits",
        "  --------           --------     ------",
        "  cpu                500m (25%)   1 (50%)",
        "  memory             128Mi (12%)  0 (0%)",
        "  ephemeral-storage  0 (0%)       0 (0%)",
        "  hugepages-2Mi      1Mi (25%)    0 (0%)",
        "  example.com/gpu    1            0",
    ]


def test_pods_that_may_not_be_listed_are_not_counted_as_none() -> None:
    words = [line.split(maxsplit=1) for line in _lines(NODE, "refused", None)]
    assert words[-2:] == [["ProviderID:", "rack://7"], ["Pods:", "not authorized"]]
    assert ["Lease:", "Failed to get lease: refused"] in words


@pytest.mark.parametrize("node", [{}, {"status": {"allocatable": {"cpu": "0", "memory": "x"}}}])
def test_a_node_that_reports_nothing_is_still_described(node: dict[str, Any]) -> None:
    lines = _lines(node, "none", PODS)
    assert "Taints:             <none>" in lines
    assert "Conditions:" not in lines
    assert lines[-3:-1] == ["  cpu                500m (0%)   1 (0%)",
                            "  memory             128Mi (0%)  0 (0%)"]  # fmt: skip


def test_without_what_is_allocatable_the_capacity_counts() -> None:
    lines = _lines({"status": {"capacity": {"cpu": "1"}}}, {}, PODS)
    assert "  cpu                500m (50%)  1 (100%)" in lines
