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

PROBE = (
    "echo seccomp=$(grep ^Seccomp: /proc/self/status | tr -dc 0-9) "
    "$(mkdir /made 2>/dev/null && echo makes || echo cannot)"
)
OFF, ON, NO_MKDIR = "seccomp=0 makes", "seccomp=2 makes", "seccomp=2 cannot"
UNCONFINED, DEFAULT = {"type": "Unconfined"}, {"type": "RuntimeDefault"}
LOCAL = {"type": "Localhost", "localhostProfile": "team/nomkdir.json"}
OTHER = {"type": "Localhost", "localhostProfile": "norename.json"}
PRIVILEGED = "privileged"

# pod's profile, container → (its profile, what it finds)
PODS: dict[str, tuple[Any, dict[str, tuple[Any, str]]]] = {
    "of-none": (
        None,
        {
            "plain": (None, OFF),
            "unconfined": (UNCONFINED, OFF),
            "default": (DEFAULT, ON),
            "local": (LOCAL, NO_MKDIR),
            "privileged": (PRIVILEGED, OFF),
        },
    ),
    "of-local": (
        LOCAL,
        {
            "plain": (None, NO_MKDIR),
            "unconfined": (UNCONFINED, OFF),
            "default": (DEFAULT, ON),
            "other": (OTHER, ON),
            "privileged": (PRIVILEGED, OFF),
            "init-plain": (None, NO_MKDIR),
            "init-unconfined": (UNCONFINED, OFF),
            "init-other": (OTHER, ON),
        },
    ),
    "of-default": (DEFAULT, {"plain": (None, ON), "unconfined": (UNCONFINED, OFF)}),
    "of-unconfined": (UNCONFINED, {"plain": (None, OFF), "init-local": (LOCAL, NO_MKDIR)}),
}
ROWS = [
    (pod, container, found)
    for pod, (_, containers) in PODS.items()
    for container, (_, found) in containers.items()
]


def container(name: str, profile: Any) -> dict[str, Any]:
    context: dict[str, Any] = {"seccompProfile": profile} if profile else {}
    if profile == PRIVILEGED:  # with a profile too: it cannot be applied
        context = {"privileged": True, "seccompProfile": LOCAL}
    rest = "" if name.startswith("init-") else "; sleep 1000"
    return {
        "name": name,
        "image": "localhost/busybox:1",
        "command": ["sh", "-c", PROBE + rest],
        "securityContext": context,
    }


def pod(name: str, profile: Any, containers: dict[str, tuple[Any, str]]) -> dict[str, Any]:
    made = {key: container(key, own) for key, (own, _) in containers.items()}
    spec: dict[str, Any] = {
        "containers": [one for key, one in made.items() if not key.startswith("init-")],
        "initContainers": [one for key, one in made.items() if key.startswith("init-")],
        "terminationGracePeriodSeconds": 1,
    }
    if profile:
        spec["securityContext"] = {"seccompProfile": profile}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def forbidding(*names: str) -> str:
    rule = {"names": list(names), "action": "SCMP_ACT_ERRNO", "errnoRet": 1}
    return json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]})


def prepare(run_dir: Path, pods: list[dict[str, Any]]) -> None:
    """Manifests of static pods, and the directory of profiles."""
    (run_dir / "manifests").mkdir(parents=True)
    for one in pods:
        (run_dir / "manifests" / f"{one['metadata']['name']}.yaml").write_text(json.dumps(one))
    team = run_dir / "nodeagent" / "seccomp" / "team"
    team.mkdir(parents=True)
    (team / "nomkdir.json").write_text(forbidding("mkdir", "mkdirat"))
    (team.parent / "norename.json").write_text(forbidding("rename", "renameat", "renameat2"))


@pytest.fixture(scope="module")
def confined(
    tmp_path_factory: pytest.TempPathFactory, runtime_endpoint: str
) -> Iterator[LocalCluster]:
    run_dir = tmp_path_factory.mktemp("seccomp") / "run"
    prepare(run_dir, [pod(name, profile, own) for name, (profile, own) in PODS.items()])
    with local_cluster(run_dir, runtime=runtime_endpoint) as cluster:
        yield cluster


def found_in(cluster: LocalCluster, pod_name: str, container_name: str) -> str:
    """What the container printed about itself."""

    def printed() -> str:
        done = cluster.kubectl(
            "logs", f"{pod_name}-{cluster.node}", "-c", container_name, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""

    text: str = eventually(printed, within_s=60, what=f"{pod_name}/{container_name} says", poll_s=1)
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
    waiting = pod("waiting", awaited, {"app": (None, NO_MKDIR)})
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
    assert found_in(confined, "waiting", "app") == NO_MKDIR
