"""Pods that would run with less isolation than they ask for, and one tenant who blinds a node.

A whole cluster on a real containerd, attacked through its API server, its manifests and the
runtime's own socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import tarfile
import uuid
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from nodeagent.runtime.base import ContainerSpec, RuntimeCallError, SandboxSpec
from nodeagent.runtime.cri import CriRuntime
from tests.conftest_runtime import RealRuntime, remove_pod_cgroups
from tests.e2e.harness import LocalCluster, eventually, local_cluster
from tools.runtime_lib import images, instance

pytestmark = [pytest.mark.real, pytest.mark.seconds(60)]

BUSYBOX = images.BUSYBOX
# The users that images name: those that are root or may be, and those that are not.
ROOTS = ("", "0", "0:1000", "root", "user", "4294967296", "4294967297:5")
OTHERS = {"1000": "1000", "1000:7": "1000"}
NONROOT = {"runAsNonRoot": True}
MIB = 2**20


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, real_runtime: RealRuntime
) -> Iterator[LocalCluster]:
    run_dir = tmp_path_factory.mktemp("isolation") / "run"
    (run_dir / "manifests").mkdir(parents=True)
    with local_cluster(run_dir, runtime=real_runtime.endpoint) as running:
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
    [first] = [entry for entry in manifest if entry["RepoTags"] == [BUSYBOX]]
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


def pod(name: str, script: str = "sleep 1000", **spec: Any) -> dict[str, Any]:
    """A pod of one container; `own` is the container's security context, `image` its image."""
    container = {
        "name": "c",
        "image": spec.pop("image", BUSYBOX),
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "securityContext": spec.pop("own", None),
    }
    metadata = {"name": name, **spec.pop("metadata", {})}
    whole = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec}
    spec = {"containers": [container], **whole}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Tenant:
    """Posts pods to the cluster, already bound to its node."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster = cluster
        self._file = directory / "body.json"

    def post(self, made: dict[str, Any]) -> str:
        """ "" when it was taken, else the refusal."""
        made["spec"]["nodeName"] = self.cluster.node
        self._file.write_text(json.dumps(made))
        path = "/api/v1/namespaces/default/pods"
        done = self.cluster.kubectl("create", "--raw", path, "-f", str(self._file), check=False)
        return done.stderr if done.returncode else ""

    def ended(self, name: str) -> str:
        """The log of a pod that has ended."""
        eventually(
            lambda: self.cluster.pod(name)["status"]["phase"] in ("Succeeded", "Failed"),
            within_s=60,
            what=f"pod {name} ends: {self.told(name)}",
        )
        return self.cluster.kubectl("logs", name).stdout

    def told(self, name: str) -> str:
        """Why a pod does not run: its own messages and its containers'."""
        status = self.cluster.pod(name)["status"]
        statuses = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
        waiting = [one.get("state", {}).get("waiting", {}) for one in statuses]
        texts = [status.get("message", ""), *(w.get("message", "") for w in waiting)]
        return " | ".join(filter(None, texts))

    def started(self, name: str) -> list[str]:
        """The ids of the containers that a pod has or had."""
        status = self.cluster.pod(name)["status"]
        statuses = status.get("initContainerStatuses", []) + status.get("containerStatuses", [])
        return [one["containerID"] for one in statuses if one.get("containerID")]

    def delete(self, *names: str) -> None:
        self.cluster.kubectl("delete", "pod", "--wait=false", "--ignore-not-found", *names)


@pytest.fixture
def tenant(cluster: LocalCluster, tmp_path: Path) -> Tenant:
    return Tenant(cluster, tmp_path)


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
touch /x 2>/dev/null && echo rootfs=written || echo rootfs=readonly
id -u; id -g; id -G
grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status
cat /proc/sys/net/ipv4/ip_unprivileged_port_start
for kind in net pid ipc uts mnt; do readlink /proc/self/ns/$kind; done
ls /proc/kcore 2>/dev/null; head -c1 /proc/kcore | wc -c; echo 1 > /proc/sys/kernel/domainname
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
    ({"hostUsers": False}, "spec.hostUsers"),
    ({"resources": {"limits": {"memory": "1Mi"}}}, "spec.resources"),
    ({"runtimeClassName": "Kata!"}, "spec.runtimeClassName"),
    ({"securityContext": {"seLinuxOptions": {"level": "s0:c1"}}}, "seLinuxOptions"),
    ({"securityContext": {"windowsOptions": {"hostProcess": False}}}, "windowsOptions"),
    ({"securityContext": {"runAsUser": 2**32}}, "spec.securityContext.runAsUser"),
    ({"securityContext": {"supplementalGroups": [2**32]}}, "supplementalGroups[0]"),
    ({"securityContext": {"runAsNonroot": True}}, "spec.securityContext.runAsNonroot"),
    ({"securityContext": {"appArmorProfile": {}}}, "appArmorProfile.type"),
    ({"own": {"procMount": "Unmasked"}}, "spec.containers[0].securityContext.procMount"),
    ({"own": {"seLinuxOptions": {"user": "u"}}}, "seLinuxOptions"),
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
    static = pod("static-users", hostUsers=False)
    manifest = cluster.run_dir / "manifests" / "users.json"
    manifest.write_text(json.dumps(static))
    for name, (_, text) in later.items():
        told = eventually(lambda n=name: tenant.told(n), within_s=60, what=f"{name} is refused")
        assert text in told
        assert not tenant.started(name), f"{name} was started all the same"
    eventually(
        lambda: "spec.hostUsers: Forbidden" in cluster.log("nodeagent"),
        within_s=30,
        what="the agent refuses the manifest",
    )
    manifest.unlink()
    tenant.delete(*later)


def blinding(name: str) -> dict[str, Any]:
    """A pod with 2.6 MB of labels."""
    labels = {f"k{number:05}": "x" * 58 for number in range(40_000)}
    return pod(name, metadata={"labels": labels})


def sizes(endpoint: str, node: str) -> list[int]:
    """What the runtime holds of each of the node's pods in labels and annotations, in bytes."""

    async def read() -> list[int]:
        runtime = CriRuntime(endpoint)
        try:
            rows = await runtime.list_sandboxes()
        finally:
            await runtime.close()
        own = [row for row in rows if row.labels.get("orch.io/node.name") == node]
        return [len(json.dumps([dict(row.labels), dict(row.annotations)])) for row in own]

    return asyncio.run(read())


def test_labels_of_one_tenant_do_not_blind_a_node(
    cluster: LocalCluster, tenant: Tenant, real_runtime: RealRuntime
) -> None:
    names = [f"blinding-{number}" for number in range(8)]
    taken = [name for name in names if not tenant.post(blinding(name))]
    static = [f"static-{number}" for number in range(8 - len(taken))]
    for name in static:
        (cluster.run_dir / "manifests" / f"{name}.json").write_text(json.dumps(blinding(name)))
    wanted = {*taken, *(f"{name}-{cluster.node}" for name in static)}

    def running() -> bool:
        pods = json.loads(cluster.kubectl("get", "--raw", cluster.proxy("/runningpods/")).stdout)
        return wanted <= {item["metadata"]["name"] for item in pods["items"]}

    eventually(running, within_s=120, what=f"the node lists {wanted}")
    held = sizes(real_runtime.endpoint, cluster.node)
    assert max(held) < 32 * 1024, f"the runtime holds {held} bytes of labels and annotations"
    assert cluster.ready_condition()["status"] == "True"
    for name in static:
        (cluster.run_dir / "manifests" / f"{name}.json").unlink()
    tenant.delete(*names)


async def old_pods(runtime: CriRuntime, node: str, directory: Path, *, count: int) -> list[str]:
    """Pods as an agent made them that passed on whatever it was given; their cgroups' parents."""
    parents = []
    for number in range(count):
        uid = str(uuid.uuid4())
        own = {
            "orch.io/node.name": node,
            "orch.io/pod.uid": uid,
            "orch.io/pod.name": f"old-{number}",
        }
        parents.append(f"/orchpods/pod{uid}")
        spec = SandboxSpec(
            name=f"old-{number}", namespace="default", uid=uid, cgroup_parent=parents[-1],
            log_directory=str(directory), labels=own, annotations={"note": "x" * (6 * MIB)},
        )  # fmt: skip
        sandbox_id = await runtime.run_sandbox(spec)
        sleeper = ContainerSpec("c", 0, BUSYBOX, command=("sleep", "1000"), labels=own)
        await runtime.start_container(await runtime.create_container(sandbox_id, sleeper, spec))
    return parents


def test_pods_of_an_older_agent_do_not_blind_it_either(
    cluster: LocalCluster, tenant: Tenant, real_runtime: RealRuntime, tmp_path: Path
) -> None:
    async def make() -> list[str]:
        runtime = CriRuntime(real_runtime.endpoint)
        try:
            return await old_pods(runtime, cluster.node, tmp_path, count=3)
        finally:
            await runtime.close()

    agent = cluster.pid("nodeagent")
    os.kill(agent, signal.SIGSTOP)  # else it would remove them one by one
    try:
        parents = asyncio.run(make())
    finally:
        os.kill(agent, signal.SIGCONT)
    assert not tenant.post(pod("after", "echo fine"))
    assert tenant.ended("after") == "fine\n"
    log = cluster.log("nodeagent")
    assert "its sandboxes are listed one by one" in log, "the list was not too large"
    assert "look for pods with large labels" in log
    held = asyncio.run(held_until_gone(real_runtime.endpoint, within_s=120))
    assert held == [], f"the agent does not see, and so does not remove, {held}"
    assert cluster.ready_condition()["status"] == "True"
    tenant.delete("after")
    for parent in parents:
        remove_pod_cgroups(parent)


async def held_until_gone(endpoint: str, *, within_s: float) -> list[str]:
    """The old pods that the runtime still has containers of after this time."""
    runtime, loop, held = CriRuntime(endpoint), asyncio.get_running_loop(), ["not listed"]
    until_s = loop.time() + within_s
    try:
        while held and loop.time() < until_s:
            await asyncio.sleep(1)
            with contextlib.suppress(RuntimeCallError):  # it is busy
                rows = await runtime.list_containers()
                names = (row.labels.get("orch.io/pod.name", "") for row in rows)
                held = [name for name in names if name.startswith("old-")]
    finally:
        await runtime.close()
    return held


def test_an_unsafe_sysctl_is_never_applied_while_an_agent_restarts(
    cluster: LocalCluster, tenant: Tenant
) -> None:
    assert not tenant.post(pod("bystander"))
    before = eventually(lambda: tenant.started("bystander"), within_s=60, what="a pod runs")
    unsafe = {"sysctls": [{"name": "kernel.msgmax", "value": "65537"}]}
    names, applied = [f"unsafe-{number}" for number in range(12)], []
    for begin in range(0, len(names), 4):
        pid = cluster.pid("nodeagent")
        os.kill(pid, signal.SIGKILL)
        for name in names[begin : begin + 4]:
            assert not tenant.post(pod(name, securityContext=unsafe))
        eventually(lambda p=pid: cluster.pid("nodeagent") != p, within_s=30, what="a new agent")
        for name in names[begin : begin + 4]:
            told = eventually(lambda n=name: tenant.told(n), within_s=60, what=f"{name} is judged")
            status = cluster.pod(name)["status"]
            assert 'forbidden sysctl: "kernel.msgmax" not allowlisted' in told
            if status.get("podIP") or tenant.started(name):
                applied.append(name)
    assert applied == [], f"applied for {len(applied)} of {len(names)} pods"
    assert tenant.started("bystander") == before, "a restart must end no pod"
    tenant.delete("bystander", *names)
