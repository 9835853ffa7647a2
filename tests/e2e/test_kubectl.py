"""An unmodified kubectl against the API server, where time, pages and restarts play a part.

Single commands with every version are in test_kubectl_commands.py.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.apiserver import ApiServer, Kubectl, kubectls, running
from tests.e2e.harness import eventually

NODE = """
apiVersion: v1
kind: Node
metadata: {name: NAME, labels: {orch.io/hostname: NAME}}
status:
  conditions: [{type: Ready, status: "True", reason: AgentReady, message: ready}]
  addresses: [{type: InternalIP, address: 10.0.0.1}]
  nodeInfo: {kubeletVersion: v1.35.0, osImage: Debian, kernelVersion: "6.1"}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: web}}
spec:
  nodeName: n1
  containers: [{name: c, image: "busybox:1"}]
"""
PODS = "/api/v1/namespaces/default/pods"
LEASE = """
apiVersion: coordination.orch.io/v1
kind: Lease
metadata: {name: NAME, namespace: orch-node-lease}
spec: {holderIdentity: NAME, leaseDurationSeconds: 40}
"""

pytestmark = pytest.mark.skipif(not kubectls(), reason="kubectl is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("apiserver")) as server:
        yield server


def client(server: ApiServer, binary: str, cache: Path) -> Kubectl:
    return Kubectl(binary, server.directory / "kubeconfig", cache)


@pytest.fixture
def kubectl(server: ApiServer) -> Kubectl:
    return client(server, kubectls()[0], server.directory / "cache")


def manifest(template: str, name: str) -> str:
    return template.replace("NAME", name)


def test_nodes_are_listed_described_cordoned_tainted_and_labelled(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=manifest(NODE, "n1"))
    header, row = kubectl("get", "nodes", "n1", "-o", "wide").splitlines()
    assert header.split()[:6] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION", "INTERNAL-IP"]
    assert row.split()[:3] == ["n1", "Ready", "<none>"]
    assert "10.0.0.1" in row
    kubectl("cordon", "n1")
    assert "Ready,SchedulingDisabled" in kubectl("get", "no", "n1")
    kubectl("uncordon", "n1")
    kubectl("taint", "node", "n1", "a=b:NoSchedule")
    assert kubectl("get", "no", "n1", "-o", "jsonpath={.spec.taints[0].key}") == "a"
    kubectl("taint", "node", "n1", "a-")
    assert kubectl("get", "no", "n1", "-o", "jsonpath={.spec.taints}") == ""
    kubectl("label", "node", "n1", "x=y")
    kubectl("annotate", "node", "n1", "note=z")
    assert kubectl("get", "no", "-l", "x=y", "-o", "name") == "node/n1"
    kubectl("label", "node", "n1", "x-")
    assert kubectl("get", "no", "-l", "x=y", "-o", "name") == ""
    described = kubectl("describe", "node", "n1")
    assert "AgentReady" in described
    kubectl("delete", "node", "n1")


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", '{"metadata":{"labels":{"how":"strategic"}}}'),
        ("merge", '{"metadata":{"labels":{"how":"merge"}}}'),
        ("json", '[{"op":"add","path":"/metadata/labels/how","value":"json"}]'),
    ],
)
def test_every_kind_of_patch_is_taken(kubectl: Kubectl, kind: str, patch: str) -> None:
    name = f"patched-{kind}"
    kubectl("create", "-f", "-", stdin=manifest(POD, name))
    kubectl("patch", "pod", name, "--type", kind, "-p", patch)
    assert kubectl("get", "pod", name, "-o", "jsonpath={.metadata.labels.how}") == kind
    kubectl("delete", "pod", name, "--force", "--grace-period=0")


def test_a_pod_is_described_with_its_events(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=manifest(POD, "told"))
    uid = kubectl("get", "pod", "told", "-o", "jsonpath={.metadata.uid}")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "told.1"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "told",
            "uid": uid,
        },
        "reason": "Started",
        "message": "Started container c",
        "type": "Normal",
        "count": 1,
        "source": {"component": "nodeagent"},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(event))
    described = kubectl("describe", "pod", "told")
    assert "Started container c" in described
    kubectl("delete", "pod", "told", "--force", "--grace-period=0")


def test_watching_shows_changes_as_rows(server: ApiServer, kubectl: Kubectl) -> None:
    def create(name: str) -> None:
        watched = manifest(POD, name).replace("app: web", "app: watched")
        kubectl("create", "-f", "-", stdin=watched)

    create("listed")
    process = subprocess.Popen(
        kubectl.command("get", "pods", "-l", "app=watched", "-w", "--output-watch-events"),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        heading, listed = (process.stdout.readline().split() for _ in range(2))
        create("seen")  # the watch goes on from the list that was just shown
        server.set_status(f"{PODS}/seen", {"phase": "Running"})
        kubectl("label", "pod", "seen", "app-")
        lines = [process.stdout.readline().split() for _ in range(3)]
    finally:
        process.terminate()
        process.wait(timeout=10)
        if process.stdout is not None:
            process.stdout.close()
    assert heading[:3] == ["EVENT", "NAME", "READY"]
    assert listed[:2] == ["ADDED", "listed"]
    assert [line[0] for line in lines] == ["ADDED", "MODIFIED", "DELETED"]
    assert [line[3] for line in lines[:2]] == ["Pending", "Running"]
    kubectl("delete", "pod", "seen", "listed", "--force", "--grace-period=0")


def watches_pods(server: ApiServer) -> bool:
    lines = server.request("/metrics").splitlines()
    counts = [line for line in lines if line.startswith("apiserver_longrunning_requests{")]
    pods = [line for line in counts if 'resource="pods"' in line and 'verb="WATCH"' in line]
    return any(float(line.split()[-1]) > 0 for line in pods)


def test_waiting_ends_when_the_condition_comes_true(server: ApiServer, kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=manifest(POD, "waited"))
    process = subprocess.Popen(
        kubectl.command("wait", "pod/waited", "--for=condition=Ready", "--timeout=20s"),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    eventually(lambda: watches_pods(server), within_s=20, what="it waits")
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    server.set_status(f"{PODS}/waited", ready)
    assert process.communicate(timeout=20)[0].strip() == "pod/waited condition met"
    kubectl("delete", "pod", "waited", "--force", "--grace-period=0")


def test_a_graceful_deletion_waits_for_the_agent(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=manifest(POD, "leaving"))
    process = subprocess.Popen(kubectl.command("delete", "pod", "leaving"), stdout=subprocess.PIPE)
    eventually(lambda: "Terminating" in kubectl("get", "pods"), within_s=10, what="it is marked")
    assert process.poll() is None
    kubectl("delete", "pod", "leaving", "--grace-period=0", "--force")  # as its agent would
    assert process.wait(timeout=20) == 0
    assert process.stdout is not None
    process.stdout.close()


def test_a_namespace_goes_with_all_that_is_in_it(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "short-lived")
    unbound = manifest(POD, "inside").replace("nodeName: n1", "")
    kubectl("-n", "short-lived", "create", "-f", "-", stdin=unbound)
    kubectl("delete", "namespace", "short-lived")
    assert kubectl("get", "pods", "-A", "-o", "name") == ""
    refused = kubectl.run("delete", "namespace", "default", code=1).stderr
    assert "may not be deleted" in refused


def test_draining_evicts_what_runs_and_waits_for_its_end(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", stdin=manifest(NODE, "drained"))
    for name in ("first", "second"):
        pod = manifest(POD, name).replace("nodeName: n1", "nodeName: drained")
        kubectl("create", "-f", "-", stdin=pod)
    process = subprocess.Popen(
        kubectl.command("drain", "drained", "--force", "--timeout=30s"),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    reason = "jsonpath={.items[*].status.conditions[0].reason}"
    eventually(
        lambda: kubectl("get", "pods", "-o", reason) == " ".join(["EvictionByEvictionAPI"] * 2),
        within_s=10, what="both pods are being evicted",
    )  # fmt: skip
    kubectl("delete", "pods", "--all", "--grace-period=0", "--force")  # as their agent would
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0, out
    assert "pod/first evicted" in out
    kubectl("delete", "node", "drained")


def test_raw_paths_and_versions_are_answered(kubectl: Kubectl) -> None:
    assert kubectl("get", "--raw", "/healthz") == "ok"
    assert "[+]etcd-readiness ok" in kubectl("get", "--raw", "/readyz?verbose")
    assert "orch_healthcheck{" in kubectl("get", "--raw", "/metrics/slis")
    assert "apiserver_request_total{" in kubectl("get", "--raw", "/metrics")
    assert "Server Version: v1.35.0" in kubectl("version")
    resources = kubectl("api-resources", "--no-headers")
    assert {line.split()[0] for line in resources.splitlines()} >= {
        "configmaps", "events", "leases", "namespaces", "nodes", "pods", "secrets",
        "serviceaccounts",
    }  # fmt: skip
    assert set(kubectl("api-versions").splitlines()) >= {"coordination.orch.io/v1", "v1"}


def test_pages_are_followed_to_the_end(kubectl: Kubectl) -> None:
    for number in range(5):
        kubectl("create", "-f", "-", stdin=manifest(LEASE, f"page-{number}"))
    names = kubectl(
        "-n",
        "orch-node-lease",
        "get",
        "leases.coordination.orch.io",
        "--chunk-size=2",
        "-o",
        "name",
    )
    assert len(names.splitlines()) == 5
    kubectl("-n", "orch-node-lease", "delete", "leases.coordination.orch.io", "--all")


def test_a_restart_keeps_everything_and_versions_go_on(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        kubectl = client(server, kubectls()[0], tmp_path / "cache")
        kubectl("create", "-f", "-", stdin=manifest(NODE, "kept"))
        before = json.loads(kubectl("get", "node", "kept", "-o", "json"))
        server.process.kill()
        server.process.wait(timeout=10)
    with running(tmp_path) as server:
        assert json.loads(kubectl("get", "node", "kept", "-o", "json")) == before
        kubectl("label", "node", "kept", "again=yes")
        after = json.loads(kubectl("get", "node", "kept", "-o", "json"))
        versions = [int(o["metadata"]["resourceVersion"]) for o in (before, after)]
        assert versions[0] < versions[1]
