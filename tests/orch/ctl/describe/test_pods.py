from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from orch.ctl.describe import pods
from orch.ctl.describe.tab_writer import TabWriter

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
POD: dict[str, Any] = {
    "metadata": {
        "name": "web",
        "namespace": "d",
        "labels": {"app": "web"},
        "annotations": {"note": "x"},
        "ownerReferences": [{"kind": "Node", "name": "n1"},
                            {"kind": "ReplicaSet", "name": "web", "controller": True}],
    },
    "spec": {
        "nodeName": "n1", "priority": 0, "priorityClassName": "low", "serviceAccountName": "sa",
        "runtimeClassName": "gvisor", "nodeSelector": {"disk": "ssd"},
        "securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}},
        "resources": {"limits": {"cpu": "500m"}},
        "readinessGates": [{"conditionType": "lb"}, {"conditionType": "Ready"}],
        "tolerations": [
            {"key": "l", "value": "v"},
            {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"operator": "Exists"},
        ],
        "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/srv"}}],
        "initContainers": [{"name": "setup", "image": "i"}],
        "containers": [{"name": "c", "image": "web:1"}],
    },
    "status": {
        "phase": "Running", "message": "all well", "reason": "Fine", "hostIP": "10.0.0.1",
        "podIP": "10.1.0.2", "podIPs": [{"ip": "10.1.0.2"}, {"ip": "fd00::2"}],
        "qosClass": "Burstable", "nominatedNodeName": "n2",
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}  # fmt: skip


def _lines(pod: dict[str, Any]) -> list[str]:
    writer = TabWriter()
    pods.write(writer, pod, NOW)
    return writer.text().splitlines()


def test_a_pod_is_described() -> None:
    assert _lines(POD) == [
        "Name:                 web",
        "Namespace:            d",
        "Priority:             0",
        "Priority Class Name:  low",
        "Runtime Class Name:   gvisor",
        "Service Account:      sa",
        "Node:                 n1/10.0.0.1",
        "Labels:               app=web",
        "Annotations:          note: x",
        "Status:               Running",
        "Reason:               Fine",
        "Message:              all well",
        "SeccompProfile:       Localhost",
        "LocalhostProfile:     p.json",
        "IP:                   10.1.0.2",
        "IPs:",
        "  IP:               10.1.0.2",
        "  IP:               fd00::2",
        "Controlled By:      ReplicaSet/web",
        "NominatedNodeName:  n2",
        "Resources:",
        "  Limits:",
        "    cpu:  500m",
        "Init Containers:",
        "  setup:",
        "    Image:        i",
        "    Port:         <none>",
        "    Host Port:    <none>",
        "    Environment:  <none>",
        "    Mounts:       <none>",
        "Containers:",
        "  c:",
        "    Image:        web:1",
        "    Port:         <none>",
        "    Host Port:    <none>",
        "    Environment:  <none>",
        "    Mounts:       <none>",
        "Readiness Gates:",
        "  Type    Status",
        "  lb      <none>",
        "  Ready   True",
        "Conditions:",
        "  Type    Status",
        "  Ready   True",
        "Volumes:",
        "  v:",
        "    Empty Dir:",
        "  w:",
        "    Host Path:",
        "      Path:      /srv",
        "QoS Class:       Burstable",
        "Node-Selectors:  disk=ssd",
        "Tolerations:     op=Exists",
        "                 k:NoExecute op=Exists for 300s",
        "                 l=v",
        "Topology Spread Constraints:",
        "  Max Skew:      1",
        "  Topology Key:  zone",
    ]


def test_an_empty_pod_is_still_described() -> None:
    assert _lines({}) == [
        "Name:",
        "Namespace:",
        "Node:            <none>",
        "Labels:          <none>",
        "Annotations:     <none>",
        "Status:",
        "IP:",
        "IPs:             <none>",
        "Volumes:         <none>",
        "QoS Class:",
        "Node-Selectors:  <none>",
        "Tolerations:     <none>",
    ]


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        ("Running", ["Terminating (lasts 30s)", "Termination Grace Period:  5s"]),
        ("Failed", ["Failed"]),
    ],
)
def test_a_pod_that_terminates_says_for_how_long(phase: str, shown: list[str]) -> None:
    metadata = {"deletionTimestamp": "2026-01-31T11:59:30Z", "deletionGracePeriodSeconds": 5}
    lines = _lines({"metadata": metadata, "status": {"phase": phase}})
    at = next(n for n, line in enumerate(lines) if line.startswith("Status:"))
    assert lines[at].split(maxsplit=1)[1] == shown[0]
    assert lines[at + 1].startswith(shown[-1] if len(shown) > 1 else "IP:")
