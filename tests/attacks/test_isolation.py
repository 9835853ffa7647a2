"""Pods that would run with less isolation than they ask for, or reach what is the node's.

A whole cluster on a real containerd, attacked through its API server and its manifests.
"""

from __future__ import annotations

import io
import json
import os
import signal
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.tenants import Tenant, pod
from tests.conftest_runtime import RealRuntime
from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tools.runtime_lib import images, instance

pytestmark = [pytest.mark.real, pytest.mark.seconds(15)]

# The users that images name: those that are root or may be, and those that are not.
ROOTS = ("", "0", "0:1000", "root", "user", "4294967296", "4294967297:5")
OTHERS = {"1000": "1000", "1000:7": "1000"}
NONROOT = {"runAsNonRoot": True}
PIDS = 64
CLASSES = "/apis/node.orch.io/v1/runtimeclasses"
STRICT = f"""
apiVersion: nodeagent.config.orch.io/v1beta1
kind: NodeAgentConfiguration
podPidsLimit: {PIDS}
probeHostPolicy: pod
"""


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, real_runtime: RealRuntime
) -> Iterator[LocalCluster]:
    run_dir = tmp_path_factory.mktemp("isolation") / "run"
    (run_dir / "manifests").mkdir(parents=True)
    (run_dir / "nodeagent.conf.d").mkdir()
    (run_dir / "nodeagent.conf.d" / "strict.conf").write_text(STRICT)
    with local_cluster(run_dir, runtime=real_runtime.endpoint) as running:
        for handler in ("runc", "kata"):
            made = {
                "apiVersion": "node.orch.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": handler},
                "handler": handler,
            }
            (run_dir / "class.json").write_text(json.dumps(made))
            running.kubectl("create", "--raw", CLASSES, "-f", str(run_dir / "class.json"))
        yield running


@pytest.fixture(scope="module")
def of_users(real_runtime: RealRuntime, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """User → the name of an image that names it."""
    rt = instance.find(real_runtime.directory, None)
    archive = tmp_path_factory.mktemp("images") / "users.tar"
    made = images.build(rt.base / "root/usr/bin/busybox").archive
    names = {user: f"localhost/user:{n}" for n, user in enumerate((*ROOTS, *OTHERS))}
    archive.write_bytes(_with_users(made, names))
    socket = str(rt.layout.socket)
    rt.run(["ctr", "--address", socket, "-n", "k8s.io", "images", "import", str(archive)])
    return names


def _with_users(archive: bytes, names: dict[str, str]) -> bytes:
    """An archive with busybox's image under these names, each with its user."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as source:
        for member in source:
            found = source.extractfile(member)
            files[member.name] = found.read() if found else b""
    manifest = json.loads(files.pop("manifest.json"))
    [first] = [entry for entry in manifest if entry["RepoTags"] == [images.BUSYBOX]]
    entries = []
    for user, name in names.items():
        config = json.loads(files[first["Config"]])
        config["config"] |= {"User": user, "Labels": {"for": name}}
        data = json.dumps(config).encode()
        path = f"{sha256(data).hexdigest()}.json"
        files[path] = data
        entries.append({"Config": path, "RepoTags": [name], "Layers": first["Layers"]})
    files["manifest.json"] = json.dumps(entries).encode()
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as made:
            for path, data in files.items():
                member = tarfile.TarInfo(path)
                member.size = len(data)
                made.addfile(member, io.BytesIO(data))
        return buffer.getvalue()


@pytest.fixture
def tenant(cluster: LocalCluster) -> Tenant:
    return Tenant(cluster)


def test_no_image_runs_as_root_where_root_is_forbidden(
    tenant: Tenant, of_users: dict[str, str]
) -> None:
    wanted: dict[str, str] = {}  # name → user of the image
    for number, user in enumerate((*ROOTS, *OTHERS)):
        asked = {"own": NONROOT} if number % 2 else {"securityContext": NONROOT}
        name = f"nonroot-{number}"
        assert not tenant.post(pod(name, "id -u", image=of_users[user], **asked))
        wanted[name] = user
    init = pod("nonroot-init", image=of_users["1000"], securityContext=NONROOT)
    first = {**init["spec"]["containers"][0], "name": "i", "image": of_users[""]}
    init["spec"]["initContainers"] = [first]
    assert not tenant.post(init)
    wanted["nonroot-init"] = ""

    as_root, refused = [], 0
    for name, user in wanted.items():
        if user in OTHERS:
            assert tenant.ended(name) == f"{OTHERS[user]}\n"
            continue
        told = eventually(lambda n=name: tenant.told(n), within_s=60, what=f"{name} is refused")
        assert "container has runAsNonRoot and image " in told
        refused += 1
        if tenant.started(name):
            as_root.append(name)
    tenant.delete(*wanted)
    assert as_root == [], f"{len(as_root)} of {refused} containers of root's images were made"
    assert refused == len(ROOTS) + 1


SHOW = """
exec 2>/dev/null  # the log has no order between the two streams
touch /x && echo rootfs=written || echo rootfs=readonly
id -u; id -g; id -G
grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status
cat /proc/sys/net/ipv4/ip_unprivileged_port_start
for kind in net pid ipc uts mnt; do readlink /proc/self/ns/$kind; done
ls /proc/kcore; head -c1 /proc/kcore | wc -c; echo 1 > /proc/sys/kernel/domainname
cat /proc/1/cmdline
"""
ASKED = {
    "securityContext": {
        "runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 4000, "supplementalGroups": [5000],
        "fsGroupChangePolicy": "OnRootMismatch", "supplementalGroupsPolicy": "Strict",
        "seccompProfile": {"type": "RuntimeDefault"},
        "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "777"}],
    },
    "own": {
        "readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False, "procMount": "Default",
        "capabilities": {"drop": ["ALL"]},
    },
    "shareProcessNamespace": True, "runtimeClassName": "runc", "hostUsers": True,
}  # fmt: skip


def test_what_a_pod_asks_for_is_seen_inside_it(tenant: Tenant) -> None:
    assert not tenant.post(pod("seen", SHOW, **ASKED))
    said = tenant.ended("seen")
    lines = [line for line in said.splitlines() if line]
    tenant.delete("seen")
    fields = dict(line.split(":\t") for line in lines if ":\t" in line)
    assert lines[0] == "rootfs=readonly", said
    assert lines[1:4] == ["1000", "3000", "3000 4000 5000"], said
    assert fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2", said
    assert int(fields["CapEff"], 16) == 0, said
    assert "777" in lines, said
    hosts = {os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "pid", "ipc", "uts", "mnt")}
    seen = {line for line in lines if ":[" in line}
    assert len(seen) == 5 and not seen & hosts, said
    assert "sleep" in lines[-1], f"process 1 is not the sandbox's: {said}"  # shared


UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"hostUsers": False, "hostPID": True}, "spec.hostPID"),
    ({"runtimeClassName": "Kata!"}, "spec.runtimeClassName"),
    ({"securityContext": {"seLinuxOptions": {"lvl": "s0:c1"}}}, "seLinuxOptions.lvl"),
    ({"runtimeClassName": "unheard-of"}, 'RuntimeClass "unheard-of" not found'),
    ({"overhead": {"cpu": "1"}}, "Pod Overhead set without"),
    ({"os": {"name": "linux"}, "own": {"windowsOptions": {"hostProcess": False}}}, "windowsOpt"),
    ({"securityContext": {"runAsUser": 2**32}}, "spec.securityContext.runAsUser"),
    ({"securityContext": {"supplementalGroups": [2**32]}}, "supplementalGroups[0]"),
    ({"securityContext": {"runAsNonroot": True}}, "spec.securityContext.runAsNonroot"),
    ({"securityContext": {"appArmorProfile": {}}}, "appArmorProfile.type"),
    ({"own": {"procMount": "Unmasked"}}, "spec.containers[0].securityContext.procMount"),
    ({"own": {"capabilities": {"Drop": ["ALL"]}}}, "capabilities.Drop"),
    ({"own": {"seccompProfile": {"type": "Localhost"}}}, "seccompProfile.localhostProfile"),
]
ON_THIS_NODE: list[tuple[dict[str, Any], str]] = [
    ({"runtimeClassName": "kata"}, "spec.runtimeClassName: the runtime has no handler 'kata'"),
]
CONFINED: list[dict[str, Any]] = [
    {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}},
    {"own": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "absent"}}},
    {
        "metadata": {
            "annotations": {"container.apparmor.security.beta.kubernetes.io/c": "localhost/absent"}
        }
    },
]


def test_what_cannot_be_given_is_refused_by_its_path(cluster: LocalCluster, tenant: Tenant) -> None:
    for fields, path in UNSUPPORTED:
        refusal = tenant.post(pod("unsupported", **fields))
        assert path in refusal, f"{fields}: {refusal or 'it was taken'}"
    later = {f"later-{n}": (fields, text) for n, (fields, text) in enumerate(ON_THIS_NODE)}
    if not Path("/sys/module/apparmor/parameters/enabled").exists():
        text = "Cannot enforce AppArmor"
        later |= {f"confined-{n}": (fields, text) for n, fields in enumerate(CONFINED)}
    for name, (fields, _) in later.items():
        assert not tenant.post(pod(name, **fields))
    static = pod("static-users", hostUsers=False, hostIPC=True)
    manifest = cluster.run_dir / "manifests" / "users.json"
    manifest.write_text(json.dumps(static))
    for name, (_, text) in later.items():
        told = eventually(lambda n=name: tenant.told(n), within_s=60, what=f"{name} is refused")
        assert text in told
        assert not tenant.started(name), f"{name} was started all the same"
    eventually(
        lambda: "spec.hostIPC: Forbidden" in cluster.log("nodeagent"),
        within_s=30,
        what="the agent refuses the manifest",
    )
    manifest.unlink()
    tenant.delete(*later)


def test_an_unsafe_sysctl_is_never_applied_while_an_agent_restarts(
    cluster: LocalCluster, tenant: Tenant
) -> None:
    assert not tenant.post(pod("bystander"))
    before = eventually(lambda: tenant.started("bystander"), within_s=60, what="a pod runs")
    unsafe = {"sysctls": [{"name": "kernel.msgmax", "value": "65537"}]}
    names, applied = [f"unsafe-{number}" for number in range(12)], []
    for begin in range(0, len(names), 6):
        pid = cluster.pid("nodeagent")
        os.kill(pid, signal.SIGKILL)
        for name in names[begin : begin + 6]:
            assert not tenant.post(pod(name, securityContext=unsafe))
        eventually(lambda p=pid: cluster.pid("nodeagent") != p, within_s=30, what="a new agent")
        for name in names[begin : begin + 6]:
            told = eventually(lambda n=name: tenant.told(n), within_s=60, what=f"{name} is judged")
            status = cluster.pod(name)["status"]
            assert 'forbidden sysctl: "kernel.msgmax" not allowlisted' in told
            if status.get("podIP") or tenant.started(name):
                applied.append(name)
    assert applied == [], f"applied for {len(applied)} of {len(names)} pods"
    assert tenant.started("bystander") == before, "a restart must end no pod"
    tenant.delete("bystander", *names)


def test_a_pod_cannot_take_the_process_ids_of_the_node(tenant: Tenant) -> None:
    fork = f"n=0; while [ $n -lt {4 * PIDS} ]; do sleep 60 & n=$((n+1)); echo $n; done; echo all"
    assert not tenant.post(pod("forking", fork))
    said = tenant.ended("forking")
    tenant.delete("forking")
    forked = [int(line) for line in said.splitlines() if line.isdecimal()]
    assert forked and max(forked) < PIDS, f"{max(forked)} processes where {PIDS} are allowed"
    assert "all" not in said.splitlines()


def test_a_probe_cannot_make_the_node_talk_to_itself(cluster: LocalCluster, tenant: Tenant) -> None:
    port = int(cluster.info["nodeagent"].rpartition(":")[2])  # there is somebody
    made = pod("probing")
    made["spec"]["containers"][0]["readinessProbe"] = {
        "tcpSocket": {"host": "127.0.0.1", "port": port}, "periodSeconds": 1,
    }  # fmt: skip
    assert not tenant.post(made)

    def told() -> list[str]:
        events = cluster.get("/api/v1/namespaces/default/events")["items"]
        return [e["message"] for e in events if "probeHostPolicy" in e["message"]]

    [message] = eventually(told, within_s=60, what="an event names the policy")
    assert "host '127.0.0.1' is not the pod's address" in message
    conditions = cluster.pod("probing")["status"]["conditions"]
    assert {c["type"]: c["status"] for c in conditions}["Ready"] == "False"
    tenant.delete("probing")
