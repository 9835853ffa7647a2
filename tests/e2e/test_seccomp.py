"""Seccomp on the real runtime: what /proc/self/status says in containers, and what mkdir does.

Rows: spec.md "Seccomp profile selection" (precedence, privileged), and the reference agent's table
of effective profiles (kuberuntime TestGetSeccompProfile).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import LocalCluster, eventually, local_cluster

pytestmark = pytest.mark.seconds(20)

PROBE = (
    "echo seccomp=$(grep ^Seccomp: /proc/self/status | tr -dc 0-9) "
    "$(mkdir /made 2>/dev/null && echo makes || echo cannot)"
)
OFF, ON, NO_MKDIR = "seccomp=0 makes", "seccomp=2 makes", "seccomp=2 cannot"
UNCONFINED, DEFAULT = {"type": "Unconfined"}, {"type": "RuntimeDefault"}
LOCAL = {"type": "Localhost", "localhostProfile": "team/nomkdir.json"}
OTHER = {"type": "Localhost", "localhostProfile": "norename.json"}
PRIVILEGED = "privileged"

# What the pod says, and what each kind of container says for itself: what that one finds.
POD_PROFILES = {"none": None, "unconfined": UNCONFINED, "default": DEFAULT, "local": LOCAL}
OWN_PROFILES = {
    "plain": None,
    "unconfined": UNCONFINED,
    "default": DEFAULT,
    "local": LOCAL,
    "other": OTHER,
    "privileged": PRIVILEGED,
}
BY_ITSELF = {"unconfined": OFF, "default": ON, "local": NO_MKDIR, "other": ON, "privileged": OFF}
FOUND = {
    "none": {"plain": OFF, **BY_ITSELF},
    "unconfined": {"plain": OFF, **BY_ITSELF},
    "default": {"plain": ON, **BY_ITSELF},
    "local": {"plain": NO_MKDIR, **BY_ITSELF},
}
PLACES = {"app": "containers", "init": "initContainers", "late": "ephemeralContainers"}
ROWS = [
    (f"of-{pod_says}", f"{place}-{says}", found)
    for pod_says, rows in FOUND.items()
    for says, found in rows.items()
    for place in PLACES
]


def container(name: str, profile: Any) -> dict[str, Any]:
    context: dict[str, Any] = {"seccompProfile": profile} if profile else {}
    if profile == PRIVILEGED:  # with a profile too: it cannot be applied
        context = {"privileged": True, "seccompProfile": LOCAL}
    rest = "; sleep 1000" if name.startswith("app") else ""
    return {
        "name": name,
        "image": "localhost/busybox:1",
        "command": ["sh", "-c", PROBE + rest],
        "securityContext": context,
    }


def pod(name: str, profile: Any, own: dict[str, Any]) -> dict[str, Any]:
    """A container of each name in the place that its name begins with; `own` are their profiles."""
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 1}
    for place, key in PLACES.items():
        if made := [container(one, p) for one, p in own.items() if one.startswith(place)]:
            spec[key] = made
    if profile:
        spec["securityContext"] = {"seccompProfile": profile}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def forbidding(*names: str) -> str:
    rule = {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": 1}
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]})


def prepare(run_dir: Path) -> None:
    """The directories of manifests and profiles."""
    (run_dir / "manifests").mkdir(parents=True)
    team = run_dir / "nodeagent" / "seccomp" / "team"
    team.mkdir(parents=True)
    (team / "nomkdir.json").write_text(forbidding("mkdir", "mkdirat"))
    (team.parent / "norename.json").write_text(forbidding("rename", "renameat", "renameat2"))


def create(cluster: LocalCluster, pods: list[dict[str, Any]]) -> None:
    """Bind pods to the node, then add their ephemeral containers, as a debugger would."""
    for one in pods:
        file, late = cluster.run_dir / "pod.json", one["spec"].pop("ephemeralContainers", [])
        one["spec"]["nodeName"] = cluster.node
        file.write_text(json.dumps(one))
        cluster.kubectl("create", "-f", str(file))
        made = cluster.pod(one["metadata"]["name"])
        del made["metadata"]["resourceVersion"]  # the agent reports beside it
        made["spec"]["ephemeralContainers"] = late
        file.write_text(json.dumps(made))
        path = f"/api/v1/namespaces/default/pods/{one['metadata']['name']}/ephemeralcontainers"
        cluster.kubectl("replace", "--raw", path, "-f", str(file))


@pytest.fixture(scope="module")
def confined(
    tmp_path_factory: pytest.TempPathFactory, runtime_endpoint: str
) -> Iterator[LocalCluster]:
    run_dir = tmp_path_factory.mktemp("seccomp") / "run"
    everywhere = {f"{place}-{k}": own for place in PLACES for k, own in OWN_PROFILES.items()}
    prepare(run_dir)
    with local_cluster(run_dir, runtime=runtime_endpoint) as cluster:
        create(cluster, [pod(f"of-{name}", p, everywhere) for name, p in POD_PROFILES.items()])
        yield cluster


def found_in(cluster: LocalCluster, pod_name: str, container_name: str) -> str:
    """What the container printed about itself."""

    def printed() -> str:
        log = f"/api/v1/namespaces/default/pods/{pod_name}/log?container={container_name}"
        return cluster.request(log).strip()

    text: str = eventually(printed, within_s=60, what=f"{pod_name}/{container_name} says")
    return text


@pytest.mark.parametrize(("pod_name", "container_name", "found"), ROWS)
def test_a_container_runs_under_its_effective_profile(
    confined: LocalCluster, pod_name: str, container_name: str, found: str
) -> None:
    assert found_in(confined, pod_name, container_name) == found


def test_a_missing_profile_is_shown_and_the_pod_starts_when_it_is_there(
    confined: LocalCluster,
) -> None:
    awaited = {"type": "Localhost", "localhostProfile": "late/nomkdri.json"}
    waiting = pod("waiting", awaited, {"app": None})
    (confined.run_dir / "manifests" / "waiting.yaml").write_text(json.dumps(waiting))
    name = f"waiting-{confined.node}"

    def shown(word: str) -> bool:
        return word in confined.kubectl("get", "pods", name, check=False).stdout

    eventually(lambda: shown("CreateContainerError"), within_s=30, what="the error is shown")
    status = confined.pod(name)["status"]["containerStatuses"][0]["state"]["waiting"]
    path = confined.run_dir / "nodeagent" / "seccomp" / "late" / "nomkdri.json"
    assert str(path) in status["message"]
    assert "spec.securityContext.seccompProfile" in status["message"]

    path.parent.mkdir()
    path.write_text(forbidding("mkdir", "mkdirat"))
    eventually(lambda: shown("Running"), within_s=30, what="the pod runs")
    assert found_in(confined, name, "app") == NO_MKDIR
