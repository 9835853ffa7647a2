"""Pods as the API writes them → what the runtime is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodeagent.pods.actions import StartContainer
from nodeagent.pods.spec import spec
from nodeagent.pods.spec.env import SpecError
from nodeagent.pods.spec.spec import ContainerContext, PodSettings
from nodeagent.runtime.base import ContainerSpec, LinuxResources, Mount, PortMapping
from orch.wire.records.pods import Container, Pod
from tests.fakes.pods import UID, container_data, pod

SETTINGS = PodSettings(
    node_name="node1",
    root_dir="/agent",
    pod_logs_dir="/logs",
    host_ip="192.0.2.1",
    memory_capacity_bytes=1000 * 2**20,
)
START = StartContainer("app", attempt=3, backoff_step=2)


def made(of: Pod, context: ContainerContext | None = None) -> ContainerSpec:
    return spec.container_spec(
        of, of.spec.containers[0], START, SETTINGS, context or ContainerContext()
    )


def one(**fields: Any) -> Pod:
    """A pod whose only container has these fields."""
    return pod(container_data("app", **fields))


@pytest.mark.parametrize(("namespace", "name"), [("n" * 63, "p" * 253), ("default", "p" * 213)])
def test_every_valid_name_gives_a_directory_for_logs_of_its_own(namespace: str, name: str) -> None:
    paths = {spec.log_directory(SETTINGS, namespace, name, uid) for uid in (UID, UID[::-1])}
    assert len(paths) == 2
    for path in paths:
        directory = path.removeprefix("/logs/")
        assert len(directory.encode()) == 255
        assert directory.startswith(f"{namespace}_ppp")
        assert directory.endswith((f"p_{UID}", f"p_{UID[::-1]}"))


def test_a_sandbox_carries_the_pods_identity_logs_and_cgroup() -> None:
    wanted = pod(metadata={"labels": {"app": "shop"}}, terminationGracePeriodSeconds=7)
    sandbox = spec.sandbox_spec(wanted, SETTINGS, attempt=2)
    assert (sandbox.name, sandbox.namespace, sandbox.uid) == ("web", "default", UID)
    assert sandbox.attempt == 2
    assert sandbox.hostname == "web"
    assert sandbox.log_directory == f"/logs/default_web_{UID}"
    assert sandbox.cgroup_parent == f"/orchpods/besteffort/pod{UID}"
    assert sandbox.labels == {
        "app": "shop",
        "orch.io/pod.name": "web",
        "orch.io/pod.namespace": "default",
        "orch.io/pod.uid": UID,
        "orch.io/node.name": "node1",
    }
    assert sandbox.annotations["orch.io/pod.terminationGracePeriod"] == "7"


def test_a_label_of_the_pod_cannot_take_the_place_of_its_identity() -> None:
    wanted = pod(metadata={"labels": {"orch.io/pod.uid": "another"}})
    assert spec.sandbox_spec(wanted, SETTINGS, attempt=0).labels["orch.io/pod.uid"] == UID


def test_a_long_name_is_cut_to_a_hostname() -> None:
    wanted = pod(metadata={"name": "a" * 62 + ".b"})
    assert spec.sandbox_spec(wanted, SETTINGS, attempt=0).hostname == "a" * 62


def test_host_namespaces_ports_and_sysctls_are_passed_on() -> None:
    ports = [
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 53, "protocol": "UDP", "hostIP": "127.0.0.1"},
    ]
    context = {"sysctls": [{"name": "net.ipv4.ip_forward", "value": "1"}], "fsGroup": 5}
    wanted = pod(container_data("app", ports=ports), hostPID=True, securityContext=context)
    sandbox = spec.sandbox_spec(wanted, SETTINGS, attempt=0)
    assert sandbox.host_pid
    assert not sandbox.host_network
    assert sandbox.sysctls == {"net.ipv4.ip_forward": "1"}
    assert tuple(sandbox.supplemental_groups) == (5,)
    assert tuple(sandbox.port_mappings) == (
        PortMapping(80, 8080),
        PortMapping(53, 0, "UDP", "127.0.0.1"),
    )


def test_a_pod_in_the_hosts_network_has_its_ports_and_name() -> None:
    wanted = pod(container_data("app", ports=[{"containerPort": 80}]), hostNetwork=True)
    sandbox = spec.sandbox_spec(wanted, SETTINGS, attempt=0)
    assert sandbox.host_network
    assert sandbox.hostname == ""
    assert tuple(sandbox.port_mappings) == ()


def test_a_container_is_labelled_hashed_and_counted() -> None:
    wanted = one(command=["sh"], args=["-c", "true"], workingDir="/tmp", tty=True)
    container = made(wanted)
    assert (container.name, container.attempt) == ("app", 3)
    assert container.labels["orch.io/container.name"] == "app"
    assert container.annotations == {
        "io.kubernetes.container.hash": f"{spec.container_hash(wanted.spec.containers[0])}/0,0,0,0",
        "io.kubernetes.container.restartCount": "3",
        "orch.io/container.backoffStep": "2",
    }
    assert container.log_path == "app/3.log"
    assert tuple(container.command) == ("sh",)
    assert container.working_dir == "/tmp"
    assert container.tty


def test_command_and_args_see_the_environment() -> None:
    ip = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    host = {"name": "HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
    wanted = one(command=["serve", "$(IP)"], args=["--from=$(HOST)", "$(NONE)"], env=[ip, host])
    container = made(wanted, ContainerContext(pod_ips=("10.0.0.9",)))
    assert tuple(container.command) == ("serve", "10.0.0.9")
    assert tuple(container.args) == ("--from=192.0.2.1", "$(NONE)")


RESOURCES: list[tuple[dict[str, Any], LinuxResources]] = [
    ({}, LinuxResources(cpu_shares=2, oom_score_adj=1000)),
    (
        {"limits": {"cpu": "500m", "memory": "64Mi"}},
        LinuxResources(512, 50_000, 100_000, 64 * 2**20, -997),
    ),
    ({"requests": {"cpu": "2"}}, LinuxResources(cpu_shares=2048, oom_score_adj=999)),
    (
        {"requests": {"memory": "500Mi"}, "limits": {"memory": "600Mi"}},
        LinuxResources(2, None, None, 600 * 2**20, 500),
    ),
    ({"limits": {"cpu": "1m"}}, LinuxResources(2, 1000, 100_000, None, 999)),
    ({"limits": {"cpu": 1.5}}, LinuxResources(1536, 150_000, 100_000, None, 999)),
]


@pytest.mark.parametrize(("resources", "expected"), RESOURCES)
def test_resources_become_cgroup_settings(
    resources: dict[str, Any], expected: LinuxResources
) -> None:
    assert made(one(resources=resources)).resources == expected


def test_the_container_wins_over_the_pod_in_its_security_context() -> None:
    context = {"runAsUser": 1000, "runAsGroup": 1000, "supplementalGroups": [7], "fsGroup": 9}
    own = {
        "runAsUser": 2000,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
    }
    container = made(pod(container_data("app", securityContext=own), securityContext=context))
    assert (container.run_as_user, container.run_as_group) == (2000, 1000)
    assert tuple(container.supplemental_groups) == (9, 7)
    assert container.no_new_privileges
    assert container.readonly_rootfs
    assert tuple(container.add_capabilities) == ("NET_ADMIN",)
    assert tuple(container.drop_capabilities) == ("ALL",)


def mounting(**fields: Any) -> Pod:
    mount = {"name": "data", "mountPath": "/data", **fields}
    long = {"name": "LONG", "value": "x" * 2**20}
    return one(volumeMounts=[mount], env=[{"name": "WHERE", "value": "here"}, long])


VOLUMES = ContainerContext(volumes={"data": "/agent/pods/x/volumes/empty-dir/data"})
BASE = VOLUMES.volumes["data"]
MOUNTS: list[tuple[dict[str, Any], Mount]] = [
    ({}, Mount(BASE, "/data")),
    ({"readOnly": True}, Mount(BASE, "/data", readonly=True)),
    ({"subPath": "a/b"}, Mount(f"{BASE}/a/b", "/data")),
    ({"subPathExpr": "x-$(WHERE)"}, Mount(f"{BASE}/x-here", "/data")),
    ({"mountPropagation": "HostToContainer"}, Mount(BASE, "/data", False, "host_to_container")),
    (
        {"readOnly": True, "recursiveReadOnly": "Enabled"},
        Mount(BASE, "/data", readonly=True, recursive_readonly=True),
    ),
]


@pytest.mark.parametrize(("fields", "expected"), MOUNTS)
def test_volume_mounts_become_mounts(fields: dict[str, Any], expected: Mount) -> None:
    assert made(mounting(**fields), VOLUMES).mounts == (expected,)


IMAGE_VOLUME = [{"name": "data", "image": {"reference": "localhost/files:1"}}]


def test_a_volume_that_is_an_image_is_mounted_by_the_runtime_and_read_only() -> None:
    container = container_data("app", volumeMounts=[{"name": "data", "mountPath": "/data"}])
    [mount] = made(pod(container, volumes=IMAGE_VOLUME)).mounts
    assert mount == Mount("", "/data", readonly=True, image="localhost/files:1")


@pytest.mark.parametrize(
    "fields",
    [{"subPath": "a"}, {"subPathExpr": "$(A)"}, {"mountPropagation": "HostToContainer"}],
)
def test_an_image_is_mounted_whole_and_by_itself(fields: dict[str, str]) -> None:
    mount = {"name": "data", "mountPath": "/data", **fields}
    with pytest.raises(SpecError, match="an image volume is mounted whole and by itself"):
        made(pod(container_data("app", volumeMounts=[mount]), volumes=IMAGE_VOLUME))


REFUSED = [
    ({"subPath": "../up"}, r"must not contain '\.\.'"),
    ({"subPath": "/abs"}, "must be relative"),
    ({"subPath": "a\0b"}, "must be relative .* or NUL"),
    ({"subPathExpr": "../$(WHERE)"}, r"must not contain '\.\.'"),
    ({"subPath": "a/" * 2048 + "b"}, "has more than 4096 bytes"),
    ({"subPathExpr": "$(LONG)" * 300}, "stands for more than 4096 bytes"),
    ({"subPathExpr": "$(WHERE)" + "x" * 4096}, "has more than 4096 bytes"),
    ({"name": "other"}, "volume 'other' is not in spec.volumes"),
    ({"mountPropagation": "Bidirectional"}, "needs privileged: true"),
    ({"mountPropagation": "Sideways"}, "is not one of None"),
    ({"recursiveReadOnly": "Enabled"}, "needs readOnly: true"),
    ({"recursiveReadOnly": "Always", "readOnly": True}, "is not one of Disabled, IfPossible"),
    (
        {
            "recursiveReadOnly": "Enabled",
            "readOnly": True,
            "mountPropagation": "HostToContainer",
        },
        "needs mountPropagation None",
    ),
]


@pytest.mark.parametrize(("fields", "text"), REFUSED)
def test_a_mount_that_cannot_be_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        made(mounting(**fields), VOLUMES)


@pytest.mark.parametrize(("kernel", "possible"), [("5.11.9", False), ("5.12.0", True)])
def test_recursive_read_only_needs_the_kernel_of_the_table(kernel: str, possible: bool) -> None:
    settings = replace(SETTINGS, kernel_version=kernel)
    start = StartContainer("app", 0, 0)

    def recursive(asked: str) -> bool:
        wanted = mounting(readOnly=True, recursiveReadOnly=asked)
        made = spec.container_spec(wanted, wanted.spec.containers[0], start, settings, VOLUMES)
        return made.mounts[0].recursive_readonly

    assert recursive("IfPossible") is possible
    if possible:
        assert recursive("Enabled")
    else:
        with pytest.raises(SpecError, match=r"needs kernel 5\.12"):
            recursive("Enabled")


GRACE: list[tuple[dict[str, Any], int]] = [
    ({}, 30),
    ({"terminationGracePeriodSeconds": 5}, 5),
    ({"terminationGracePeriodSeconds": 5, "metadata": {"deletionGracePeriodSeconds": 2}}, 2),
    ({"metadata": {"deletionGracePeriodSeconds": 0}}, 0),
    ({"terminationGracePeriodSeconds": -5}, 1),
]


@pytest.mark.parametrize(("fields", "expected_s"), GRACE)
def test_the_grace_period_is_the_deletions_then_the_pods_then_30_s(
    fields: dict[str, Any], expected_s: int
) -> None:
    assert spec.grace_period_s(pod(**fields)) == expected_s


def test_a_containers_hash_does_not_see_what_is_empty() -> None:
    plain = Container.from_wire({"name": "app", "image": "x"})
    padded = Container.from_wire(
        {"name": "app", "image": "x", "env": [], "later": None, "tty": None}
    )
    other = Container.from_wire({"name": "app", "image": "y"})
    assert spec.container_hash(plain) == spec.container_hash(padded)
    assert spec.container_hash(plain) != spec.container_hash(other)
    # Another value here would make an upgraded agent restart every container.
    assert spec.container_hash(plain) == "c3b2f6211e89b67d"


def test_a_huge_grace_period_is_one_that_the_runtime_can_be_asked_for() -> None:
    assert spec.grace_period_s(pod(terminationGracePeriodSeconds=2**63 - 1)) == 2**31 - 1
