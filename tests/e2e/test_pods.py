"""Pods bound through the API and static ones, run for real and shown by an unmodified kubectl."""

from __future__ import annotations

import glob
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import PATIENCE_S, LocalCluster, eventually

pytestmark = pytest.mark.seconds(45)

PODS = "/api/v1/namespaces/default/pods"


def apply(cluster: LocalCluster, tmp_path: Path, pod: dict[str, Any]) -> str:
    path = tmp_path / f"{pod['metadata']['name']}.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **pod}))
    cluster.kubectl("create", "-f", str(path))
    return str(pod["metadata"]["name"])


def container(cluster: LocalCluster, pod: str, index: int = 0) -> dict[str, Any]:
    statuses = cluster.pod(pod)["status"].get("containerStatuses", [])
    return statuses[index] if len(statuses) > index else {}


def busybox(script: str, **more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "localhost/busybox:1", "command": ["sh", "-c", script], **more}


def memory_limits_of(uid: str) -> list[str]:
    """The memory limits of a pod's containers, in cgroup v1 or v2."""
    patterns = ("*/orchpods/pod{}/*/memory.limit_in_bytes", "orchpods/pod{}/*/memory.max")
    found = [name for text in patterns for name in glob.glob(f"/sys/fs/cgroup/{text.format(uid)}")]
    return [Path(name).read_text().strip() for name in found]


def cgroups_of(uid: str) -> list[str]:
    return glob.glob(f"/sys/fs/cgroup/**/orchpods/**/pod{uid}", recursive=True)


def test_a_pod_without_a_node_runs_or_is_told_why_not(cluster: LocalCluster) -> None:
    """As `kubectl run` makes it."""
    run = ("run", "--image=localhost/busybox:1", "--restart=Never")
    cluster.kubectl(*run, "brief", "--", "true")
    selector = '--overrides={"spec":{"nodeSelector":{"disk":"none"}}}'
    cluster.kubectl(*run, "choosy", selector, "--", "true")

    eventually(
        lambda: cluster.pod("brief")["status"]["phase"] == "Succeeded",
        within_s=PATIENCE_S,
        what="the pod has run",
    )
    assert cluster.pod("brief")["spec"]["nodeName"] == cluster.node
    text = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
    shown = eventually(
        lambda: [
            condition
            for condition in cluster.pod("choosy")["status"].get("conditions", [])
            if condition["type"] == "PodScheduled"
        ],
        within_s=PATIENCE_S,
        what="the other is told why not",
    )
    assert (shown[0]["status"], shown[0]["reason"], shown[0]["message"]) == (
        "False", "Unschedulable", text,
    )  # fmt: skip
    eventually(
        lambda: text in cluster.kubectl("describe", "pod", "choosy").stdout,
        within_s=PATIENCE_S,
        what="an event says so",
    )
    cluster.kubectl("label", "node", cluster.node, "disk=none")
    eventually(
        lambda: cluster.pod("choosy")["status"]["phase"] == "Succeeded",
        within_s=PATIENCE_S,
        what="it runs once the node fits",
    )
    cluster.kubectl("label", "node", cluster.node, "disk-")
    cluster.kubectl("delete", "pod", "brief", "choosy", "--now")


def test_a_pod_bound_through_the_api_runs_as_asked_and_goes_when_deleted(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    told.mkdir()
    script = 'echo "$GREETING $WHO from $POD" > /told/line; echo kept > /own/file; sleep 1000'
    name = apply(
        cluster,
        tmp_path,
        {
            "metadata": {"name": "asked", "labels": {"app": "asked"}},
            "spec": {
                "nodeName": cluster.node,
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    busybox(
                        script,
                        env=[
                            {"name": "WHO", "value": "world"},
                            {"name": "GREETING", "value": "hello"},
                            {
                                "name": "POD",
                                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
                            },
                        ],
                        resources={"limits": {"cpu": "100m", "memory": "32Mi"}},
                        volumeMounts=[
                            {"name": "told", "mountPath": "/told"},
                            {"name": "own", "mountPath": "/own"},
                        ],
                    )
                ],
                "volumes": [
                    {"name": "told", "hostPath": {"path": str(told), "type": "Directory"}},
                    {"name": "own", "emptyDir": {}},
                ],
            },
        },
    )
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=50s")
    line = told / "line"  # the shell creates it before it writes
    eventually(
        lambda: line.exists() and line.read_text() == "hello world from asked\n",
        within_s=PATIENCE_S,
        what="the container wrote its line",
    )
    pod = cluster.pod(name)
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["qosClass"] == "Guaranteed"
    assert pod["status"]["podIP"]
    uid = pod["metadata"]["uid"]
    assert str(32 * 2**20) in memory_limits_of(uid)

    cluster.kubectl("delete", "pod", name, "--timeout=50s")
    directory = cluster.run_dir / "nodeagent" / "pods" / uid
    eventually(lambda: not directory.exists(), within_s=PATIENCE_S, what="its directory is gone")
    eventually(lambda: not cgroups_of(uid), within_s=PATIENCE_S, what="its cgroups are gone")
    assert line.exists(), "a hostPath is the host's"


def test_a_deleted_pod_shows_its_end_while_a_finalizer_holds_it(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    ends_well = "trap 'exit 0' TERM; while :; do sleep 0.1; done"
    metadata = {"name": "held", "finalizers": ["example.org/wait"]}
    spec = {"nodeName": cluster.node, "containers": [busybox(ends_well)]}
    name = apply(cluster, tmp_path, {"metadata": metadata, "spec": spec})
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=50s")
    uid = cluster.pod(name)["metadata"]["uid"]
    cluster.kubectl("delete", "pod", name, "--wait=false")
    eventually(lambda: not cgroups_of(uid), within_s=PATIENCE_S, what="nothing runs any more")
    cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}")
    assert container(cluster, name)["state"]["terminated"]["exitCode"] == 0
    cluster.kubectl("patch", "pod", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    cluster.kubectl("wait", "--for=delete", f"pod/{name}", "--timeout=50s")


def test_a_pod_that_runs_is_given_a_container_to_debug_it(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    spec = {
        "nodeName": cluster.node,
        "terminationGracePeriodSeconds": 1,
        "containers": [busybox("sleep 1000")],
    }
    name = apply(cluster, tmp_path, {"metadata": {"name": "debugged"}, "spec": spec})
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=50s")
    before = container(cluster, name)["containerID"]
    pod = cluster.pod(name)
    del pod["metadata"]["resourceVersion"]  # the agent reports beside it
    pod["spec"]["ephemeralContainers"] = [
        {**busybox("tr '\\0' ' ' < /proc/1/cmdline"), "name": "debug", "targetContainerName": "c"}
    ]
    (tmp_path / "debugged").write_text(json.dumps(pod))
    path = f"/api/v1/namespaces/default/pods/{name}/ephemeralcontainers"
    cluster.kubectl("replace", "--raw", path, "-f", str(tmp_path / "debugged"))

    def ended() -> Any:
        statuses = cluster.pod(name)["status"].get("ephemeralContainerStatuses") or [{}]
        return statuses[0].get("state", {}).get("terminated")

    assert (
        eventually(ended, within_s=PATIENCE_S, what="the container ran and ended")["exitCode"] == 0
    )
    eventually(
        lambda: cluster.request(f"{PODS}/{name}/log?container=debug").endswith("sleep 1000 "),
        within_s=PATIENCE_S,
        what="its log",
    )
    assert container(cluster, name)["containerID"] == before
    cluster.kubectl("delete", "pod", name, "--timeout=50s")


def test_a_container_that_keeps_failing_backs_off(cluster: LocalCluster, tmp_path: Path) -> None:
    name = apply(
        cluster,
        tmp_path,
        {
            "metadata": {"name": "failing"},
            "spec": {"nodeName": cluster.node, "containers": [busybox("exit 3")]},
        },
    )
    status = eventually(
        lambda: (
            (s := container(cluster, name))
            and s.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff"
            and s
        ),
        within_s=PATIENCE_S,
        what="the container waits for its restart",
    )
    assert status["lastState"]["terminated"]["exitCode"] == 3
    eventually(
        lambda: container(cluster, name).get("restartCount", 0) >= 1,
        within_s=PATIENCE_S,
        what="it was started again",
    )
    cluster.kubectl("delete", "pod", name, "--timeout=50s")


@pytest.mark.parametrize(("policy", "script", "phase"), [
    ("Never", "exit 0", "Succeeded"),
    ("Never", "exit 7", "Failed"),
    ("OnFailure", "exit 0", "Succeeded"),
])  # fmt: skip
def test_a_pod_that_need_not_run_on_ends(
    cluster: LocalCluster, tmp_path: Path, policy: str, script: str, phase: str
) -> None:
    name = apply(
        cluster,
        tmp_path,
        {
            "metadata": {"name": f"ends-{policy.lower()}-{script[-1]}"},
            "spec": {
                "nodeName": cluster.node,
                "restartPolicy": policy,
                "containers": [busybox(script)],
            },
        },
    )
    eventually(
        lambda: cluster.pod(name)["status"]["phase"] == phase,
        within_s=PATIENCE_S,
        what=f"it is {phase}",
    )
    cluster.kubectl("delete", "pod", name, "--timeout=50s")


def test_a_pod_waits_for_a_condition_of_others_and_ends_at_its_deadline(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    spec = {
        "nodeName": cluster.node,
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": 12,
        "readinessGates": [{"conditionType": "example.com/served"}],
        "containers": [busybox("sleep 1000")],
    }
    name = apply(cluster, tmp_path, {"metadata": {"name": "gated"}, "spec": spec})

    def conditions() -> dict[str, dict[str, Any]]:
        listed = cluster.pod(name)["status"].get("conditions", [])
        return {condition["type"]: condition for condition in listed}

    def waits() -> bool:
        return conditions().get("Ready", {}).get("reason") == "ReadinessGatesNotReady"

    eventually(waits, within_s=PATIENCE_S, what="it waits for the condition")
    set_gate = {"status": {"conditions": [{"type": "example.com/served", "status": "True"}]}}
    arguments = ("patch", "pod", name, "--subresource=status", "--type=strategic", "-p")
    cluster.kubectl(*arguments, json.dumps(set_gate))
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=50s")
    assert "reason" not in conditions()["Ready"]
    eventually(
        lambda: cluster.pod(name)["status"]["phase"] == "Failed",
        within_s=PATIENCE_S,
        what="it has failed",
    )
    assert cluster.pod(name)["status"]["reason"] == "DeadlineExceeded"
    assert conditions()["example.com/served"]["status"] == "True"
    cluster.kubectl("delete", "pod", name, "--timeout=50s")


def test_static_pods_come_change_and_go_with_their_manifest(cluster: LocalCluster) -> None:
    manifest = cluster.run_dir / "manifests" / "own.yaml"
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: own}\n"
        "spec:\n  terminationGracePeriodSeconds: 1\n"
        "  containers: [{name: c, image: 'localhost/busybox:1', command: [sleep, '%s']}]\n"
    )
    name = f"own-{cluster.node}"

    def running() -> str:
        statuses = cluster.pod(name)["status"].get("containerStatuses", [])
        return statuses[0]["containerID"] if statuses and statuses[0]["ready"] else ""

    manifest.write_text(text % 1000)
    first = eventually(running, within_s=PATIENCE_S, what="the static pod runs and has a mirror")
    cluster.kubectl("delete", "pod", name, "--wait=false", "--grace-period=0", "--force")
    assert eventually(running, within_s=PATIENCE_S, what="its mirror is back") == first

    manifest.write_text("kind: Pod\nmetadata: [")  # while it is being edited
    manifest.write_text(text % 2000)
    second = eventually(
        lambda: (now := running()) != first and now,
        within_s=PATIENCE_S,
        what="the changed pod runs",
    )
    assert second != first

    manifest.unlink()
    eventually(
        lambda: name not in [pod["metadata"]["name"] for pod in cluster.get(PODS)["items"]],
        within_s=PATIENCE_S,
        what="pod and mirror are gone",
    )
