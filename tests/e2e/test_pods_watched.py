"""Pods as `kubectl get pods -w` shows them: every restart policy, every kind
of probe, in real containers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import PATIENCE_S, LocalCluster, eventually

pytestmark = pytest.mark.seconds(40)

EVENTS = "/api/v1/namespaces/default/events"
SERVE = "mkdir /www; echo ok > /www/up; exec httpd -f -p 8080 -h /www"
FAST = {"periodSeconds": 1, "failureThreshold": 2}
HTTP_UP = {"httpGet": {"path": "/up", "port": 8080}}
TCP_UP = {"tcpSocket": {"port": 8080}}

# name → spec of the pod, spec of its container, what STATUS shows in this order (others between
# them do not matter), and what READY says at last.
PODS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], str]] = {
    "always-ends": ({}, {"command": ["true"]}, ["CrashLoopBackOff"], "0/1"),
    "always-fails": ({}, {"command": ["false"]}, ["CrashLoopBackOff"], "0/1"),
    "onfailure-ends": ({"restartPolicy": "OnFailure"}, {"command": ["true"]}, ["Completed"], "0/1"),
    "onfailure-fails": (
        {"restartPolicy": "OnFailure"},
        {"command": ["false"]},
        ["CrashLoopBackOff"],
        "0/1",
    ),
    "never-ends": ({"restartPolicy": "Never"}, {"command": ["true"]}, ["Completed"], "0/1"),
    "never-fails": ({"restartPolicy": "Never"}, {"command": ["false"]}, ["Error"], "0/1"),
    "ready-http": ({}, {"readinessProbe": {**HTTP_UP, **FAST}}, ["Running"], "1/1"),
    "ready-tcp": ({}, {"readinessProbe": {**TCP_UP, **FAST}}, ["Running"], "1/1"),
    "ready-exec": (
        {},
        {"readinessProbe": {"exec": {"command": ["test", "-e", "/www/up"]}, **FAST}},
        ["Running"],
        "1/1",
    ),
    "unready-grpc": (
        {},
        {"readinessProbe": {"grpc": {"port": 8080, "service": ""}, **FAST}},
        ["Running"],
        "0/1",
    ),
    "unready-http": (
        {},
        {"readinessProbe": {"httpGet": {"path": "/none", "port": 8080}, **FAST}},
        ["Running"],
        "0/1",
    ),
    "started-late": (
        {},
        {"startupProbe": {**HTTP_UP, **FAST}, "livenessProbe": {**TCP_UP, **FAST}},
        ["Running"],
        "1/1",
    ),
}


@pytest.fixture
def watched(cluster: LocalCluster, tmp_path: Path) -> Iterator[Path]:
    """The output of `kubectl get pods -w`, as it grows."""
    output = tmp_path / "watched"
    kubectl = shutil.which("kubectl")
    assert kubectl
    command = [kubectl, f"--kubeconfig={cluster.info['kubeconfig']}", "get", "pods", "-w"]
    with output.open("wb") as sink:
        process = subprocess.Popen([*command, "--no-headers"], stdout=sink)
        yield output
        process.terminate()
        process.wait()


def rows(watched: Path, name: str) -> list[list[str]]:
    """NAME, READY, STATUS, RESTARTS of every line about a pod that is written whole."""
    lines = (line.split() for line in watched.read_text().split("\n")[:-1])
    return [line[:4] for line in lines if line and line[0] == name]


def described(cluster: LocalCluster, pod: str) -> str:
    return cluster.kubectl("describe", "pod", pod).stdout


def in_order(seen: list[str], wanted: list[str]) -> bool:
    rest = iter(seen)
    return all(any(one == status for one in rest) for status in wanted)


def test_every_restart_policy_and_probe_shows_what_users_expect(
    cluster: LocalCluster, watched: Path, tmp_path: Path
) -> None:
    items = []
    for name, (spec, container, _, _) in PODS.items():
        defaults = {"name": "c", "image": "localhost/busybox:1", "command": ["sh", "-c", SERVE]}
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {
                    "nodeName": cluster.node,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{**defaults, **container}],
                    **spec,
                },
            }
        )
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    cluster.kubectl("create", "-f", str(path))
    for name, (_, _, statuses, ready) in PODS.items():
        eventually(
            lambda name=name, statuses=statuses, ready=ready: (
                in_order([row[2] for row in rows(watched, name)], statuses)
                and rows(watched, name)[-1][1] == ready
            ),
            within_s=PATIENCE_S,
            what=f"{name} shows {statuses} and {ready}: {rows(watched, name)}",
        )
    for name in ("always-fails", "onfailure-fails"):
        eventually(
            lambda name=name: int(rows(watched, name)[-1][3]) >= 2,
            within_s=PATIENCE_S,
            what=f"{name} is started again, and again after its back-off",
        )
    for name in ("never-fails", "never-ends", "onfailure-ends", "unready-http"):
        assert {row[3] for row in rows(watched, name)} == {"0"}, f"{name} was restarted"
    eventually(
        lambda: "Readiness probe failed: " in described(cluster, "unready-grpc"),
        within_s=PATIENCE_S,
        what="the event of the probe",
    )

    def reasons() -> set[str]:
        return {event["reason"] for event in cluster.get(EVENTS)["items"]}

    expected = {"Pulled", "Created", "Started", "BackOff", "Unhealthy"}
    eventually(lambda: expected <= reasons(), within_s=PATIENCE_S, what=f"events {expected}")
    cluster.kubectl("delete", "pods", *PODS, "--timeout=60s")
    assert {row[2] for name in PODS for row in rows(watched, name)} >= {"Terminating"}


def test_a_liveness_probe_that_fails_restarts_its_container(
    cluster: LocalCluster, watched: Path, tmp_path: Path
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alive"},
        "spec": {
            "nodeName": cluster.node,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "c",
                    "image": "localhost/busybox:1",
                    "command": ["sh", "-c", "touch /up; sleep 4; rm /up; sleep 1000"],
                    "livenessProbe": {"exec": {"command": ["test", "-e", "/up"]}, **FAST},
                }
            ],
        },
    }
    (tmp_path / "alive.json").write_text(json.dumps(pod))
    cluster.kubectl("create", "-f", str(tmp_path / "alive.json"))
    eventually(
        lambda: rows(watched, "alive") and rows(watched, "alive")[-1][3] == "1",
        within_s=PATIENCE_S,
        what="it was restarted",
    )
    eventually(
        lambda: (
            "Container c failed liveness probe, will be restarted" in described(cluster, "alive")
        ),
        within_s=PATIENCE_S,
        what="the event of its restart",
    )
    cluster.kubectl("delete", "pod", "alive", "--timeout=60s")
