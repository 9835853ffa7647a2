"""`orchctl` against a whole cluster: what it asks agents for, and the logs of real containers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import LocalCluster, eventually
from tests.orch.ctl.conftest import Result, run_command


class Orchctl:
    def __init__(self, cluster: LocalCluster, pod: str) -> None:
        self.cluster = cluster
        self.pod = pod

    def __call__(self, line: str, *, code: int = 0) -> Result:
        """Run a line of words; NODE and POD stand for the names."""
        words = line.replace("NODE", self.cluster.node).replace("POD", self.pod)
        result = run_command(*shlex.split(words), "--kubeconfig", self.cluster.info["kubeconfig"])
        assert result.code == code, (words, result)
        return result

    def data(self, line: str) -> Any:
        return json.loads(self(f"{line} -o json").out)


@pytest.fixture(scope="module")
def orchctl(cluster: LocalCluster, demo: str) -> Orchctl:
    orchctl = Orchctl(cluster, demo)
    found = "pod/POD --for condition=Ready --timeout 30s"
    assert orchctl(f"wait {found}").out == f"pod/{demo} condition met\n"
    return orchctl


def test_usage_and_pressure_of_node_pods_and_containers(orchctl: Orchctl) -> None:
    def measured() -> list[str]:
        lines = orchctl("node top --pressure --containers").lines
        names = [line.split()[0] for line in lines]
        expected = {f"default/{orchctl.pod}", "cpu", "io"}
        return lines if names[1] == orchctl.cluster.node and expected <= set(names[2:]) else []

    lines = eventually(measured, within_s=30, what="node, pod and containers are measured")
    assert lines[0].split()[0] == "NODE/POD/CONTAINER"
    assert re.search(r"\d\.\d [▁-█]{3} \d+\.\d [▁-█]{3}", lines[1])
    assert orchctl("node summary NODE").lines[0].split() == ["Node", orchctl.cluster.node]
    assert orchctl.data("node summary NODE")["node"]["nodeName"] == orchctl.cluster.node


def test_a_node_tells_why(orchctl: Orchctl) -> None:
    def told() -> Any:
        report = orchctl.data("node why NODE")
        return report if report["windowSeconds"] else None

    report = eventually(told, within_s=40, what="two readings are there")
    assert (report["kind"], report["nodeName"]) == ("NodePressure", orchctl.cluster.node)
    assert report["resources"]["cpu"]["contended"] >= 0
    assert 1 <= len(orchctl("node why NODE").lines) <= 5


def test_the_pages_of_an_agent(orchctl: Orchctl) -> None:
    assert orchctl("node healthz node/NODE").out == "ok\n"
    assert orchctl.data("node configz NODE")["kind"] == "NodeAgentConfiguration"
    assert (
        "rootDir" in orchctl("node configz NODE").out
        or "featureGates" in orchctl("node configz NODE").out
    )
    refused = orchctl("node healthz nowhere", code=1).err
    assert 'nodes "nowhere" not found' in refused


def test_the_log_of_a_container(orchctl: Orchctl) -> None:
    made = _talker(orchctl)
    assert orchctl("logs talker --tail 2").lines == ["line 4", "line 5"]
    stamped = orchctl("logs pod/talker -c say --timestamps").lines
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d) line 1", stamped[0])
    assert orchctl("logs talker --limit-bytes 6").out == "line 1"
    assert orchctl("logs -l app=talker --prefix --tail 1").out == "[pod/talker/say] line 5\n"
    follow = subprocess.Popen(
        [sys.executable, "-m", "orch.ctl.main", "logs", "talker", "-f",
         "--kubeconfig", orchctl.cluster.info["kubeconfig"]],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert follow.stdout is not None
        assert [follow.stdout.readline() for _ in range(5)][-1] == "line 5\n"
        assert follow.poll() is None
    finally:
        follow.terminate()
        follow.communicate(timeout=10)
    assert made == "pod/talker created\n"


def _talker(orchctl: Orchctl) -> str:
    """A pod that prints five lines and stays."""
    image = orchctl.data("get pod POD")["spec"]["containers"][0]["image"]
    says = "for i in 1 2 3 4 5; do echo line $i; done; exec sleep 600"
    container = {"name": "say", "image": image, "command": ["sh", "-c", says]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "talker", "labels": {"app": "talker"}},
        "spec": {"nodeName": orchctl.cluster.node, "containers": [container],
                 "terminationGracePeriodSeconds": 1},
    }  # fmt: skip
    path = orchctl.cluster.run_dir / "talker.json"
    path.write_text(json.dumps(pod))
    made = orchctl(f"create -f {path}").out
    orchctl("wait pod/talker --for condition=Ready --timeout 60s")
    eventually(lambda: "line 5" in orchctl("logs talker").out, within_s=20, what="it spoke")
    return made


def test_a_checkpoint_is_told_and_listed(orchctl: Orchctl) -> None:
    told = orchctl("checkpoint default/POD -c cpu --timeout 60")
    node, _, archive = told.out.strip().partition(":")
    assert node == orchctl.cluster.node
    size = Path(archive).stat().st_size
    assert re.search(r"on \S+: done, \d+\.\dMi, \d+\.\d s\n$", told.err)
    (listed,) = [a for a in orchctl.data("checkpoint list") if a["path"] == archive]
    assert (listed["size"], listed["pod"], listed["container"]) == (size, orchctl.pod, "cpu")
    assert f"default/{orchctl.pod}" in orchctl("checkpoint list NODE").out


def test_objects_are_described_with_their_events(orchctl: Orchctl) -> None:
    eventually(
        lambda: {"Started", "Reason"} <= set(orchctl("describe pod POD").out.split()),
        within_s=30,
        what="the events of the pod",
    )
    assert "Started" in orchctl("events --for pod/POD").out
    node = orchctl("describe node NODE").out
    assert "HolderIdentity" in node
    assert orchctl.pod in node


def test_a_node_is_drained_of_what_may_go(orchctl: Orchctl) -> None:
    """After the others: the talker goes, the static pod stays."""
    refused = orchctl("drain NODE", code=1).err
    assert "default/talker (has no controller: --force deletes it for good)" in refused
    lines = orchctl("drain NODE --force --timeout 60s").lines
    assert lines[-1] == f"node/{orchctl.cluster.node} drained"
    assert "pod/talker evicted" in lines
    assert orchctl("get pods -o name").out == f"pod/{orchctl.pod}\n"
    orchctl("uncordon NODE")
