"""Pods that a node takes, by tables of the reference's predicate tests, and a node that is full."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nodeagent.pods.decide import admission
from nodeagent.pods.decide.admission import Refusal
from nodeagent.pods.spec import isolation
from orch.wire.podrules import podspec
from orch.wire.records.core import Node, NodeCondition
from orch.wire.records.pods import Pod
from tests.fakes.pods import container_data, pod
from tests.fakes.podworld import PodWorld, named

NODE = Node.from_wire(
    {
        "metadata": {"name": "node1", "labels": {"disk": "fast"}},
        "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]},
        "status": {
            "allocatable": {
                "cpu": "2",
                "memory": "1000Mi",
                "pods": "3",
                "hugepages-2Mi": "4Mi",
                "ephemeral-storage": "4Gi",
            },
            "nodeInfo": {"kernelVersion": "4.10.3-x"},
            "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}],
        },
    }
)
TOLERANT = {"tolerations": [{"operator": "Exists"}]}


def choosing(disk: str) -> dict[str, Any]:
    """An affinity to nodes with this disk."""
    terms = [{"matchExpressions": [{"key": "disk", "operator": "In", "values": [disk]}]}]
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def asking(cpu: str = "0", memory: str = "0", **fields: Any) -> Pod:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    container = container_data("app", resources=resources, **fields.pop("container", {}))
    return pod(container, **{**TOLERANT, **fields})


def apparmor(profile: str) -> Pod:
    """A pod that asks for a profile by the annotation of old."""
    key = "container.apparmor.security.beta.kubernetes.io/app"
    return asking(metadata={"annotations": {key: profile}})


def with_sysctl(name: str, **fields: Any) -> Pod:
    context = {"sysctls": [{"name": name, "value": "1"}]}
    return asking(securityContext=context, **fields)


PORT = {"container": {"ports": [{"containerPort": 80, "hostPort": 8080}]}}
LOCAL_PORT = {
    "container": {"ports": [{"containerPort": 1, "hostPort": 8080, "hostIP": "127.0.0.1"}]}
}
UDP_PORT = {"container": {"ports": [{"containerPort": 1, "hostPort": 8080, "protocol": "UDP"}]}}
OF_HOST = {"hostNetwork": True, "container": {"ports": [{"containerPort": 8080}]}}
PROFILE = {"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}}
STATIC = {"metadata": {"annotations": {"orch.io/config.source": "file"}}}

ROWS: list[tuple[str, Pod, list[Pod], str, str]] = [
    ("fits", asking("1"), [], "", ""),
    ("fits exactly", asking("1500m", "900Mi"), [asking("500m", "100Mi")], "", ""),
    (
        "cpu",
        asking("1501m"),
        [asking("500m")],
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 1501, used: 500, capacity: 2000",
    ),
    (
        "memory",
        asking(memory="1001Mi"),
        [],
        "OutOfmemory",
        "requested: 1049624576, used: 0, capacity: 1048576000",
    ),
    (
        "huge pages",
        pod(container_data("app", resources={"limits": {"hugepages-2Mi": "4Mi"}})),
        [pod(container_data("app", resources={"limits": {"hugepages-2Mi": "2Mi"}}))],
        "OutOfhugepages-2Mi",
        "requested: 4194304, used: 2097152, capacity: 4194304",
    ),
    (
        "disk",
        pod(container_data("app", resources={"requests": {"ephemeral-storage": "3Gi"}})),
        [pod(container_data("app", resources={"limits": {"ephemeral-storage": "2Gi"}}))],
        "OutOfephemeral-storage",
        "requested: 3221225472, used: 2147483648, capacity: 4294967296",
    ),
    ("pods", asking(), [asking()] * 3, "OutOfpods", "requested: 1, used: 3, capacity: 3"),
    (
        "a large init container",
        asking(initContainers=[container_data("i", resources={"requests": {"cpu": "3"}})]),
        [],
        "OutOfcpu",
        "requested: 3000",
    ),
    ("host port", asking(**PORT), [asking(**PORT)], "NodePorts", "host port 8080 is in use"),
    ("host port on one address", asking(**LOCAL_PORT), [asking(**PORT)], "NodePorts", "8080"),
    ("host port of another protocol", asking(**UDP_PORT), [asking(**PORT)], "", ""),
    ("port of the host's network", asking(**OF_HOST), [asking(**PORT)], "NodePorts", "8080"),
    ("selector", asking(nodeSelector={"disk": "fast"}), [], "", ""),
    ("other selector", asking(nodeSelector={"disk": "slow"}), [], "NodeAffinity", "NodeAffinity"),
    ("affinity", asking(affinity=choosing("fast")), [], "", ""),
    ("other affinity", asking(affinity=choosing("slow")), [], "NodeAffinity", "NodeAffinity"),
    ("taint", asking(tolerations=[]), [], "TaintToleration", "taint {k: v}"),
    ("static pods tolerate", asking(tolerations=[], **STATIC), [], "", ""),
    ("safe sysctl", with_sysctl("net.ipv4.tcp_syncookies"), [], "", ""),
    (
        "kernel too old",
        with_sysctl("net.ipv4.tcp_rmem"),
        [],
        "SysctlForbidden",
        '"net.ipv4.tcp_rmem" needs kernel 4.15, this node has 4.10.3-x',
    ),
    ("annotated AppArmor", apparmor("runtime/default"), [], "AppArmor", "not enabled on the host"),
    ("AppArmor of a container", asking(container=PROFILE), [], "AppArmor", "not enabled"),
    ("AppArmor of a pod", asking(**PROFILE), [], "AppArmor", "not enabled on the host"),
    ("AppArmor unconfined", apparmor("unconfined"), [], "", ""),
    ("unsafe sysctl", with_sysctl("kernel.msgmax"), [], "SysctlForbidden", "not allowlisted"),
    (
        "sysctl of the host",
        with_sysctl("net.ipv4.tcp_syncookies", hostNetwork=True),
        [],
        "SysctlForbidden",
        "not allowed with host net enabled",
    ),
]


@pytest.mark.parametrize(
    ("wanted", "others", "reason", "text"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_pod_is_taken_or_refused(wanted: Pod, others: list[Pod], reason: str, text: str) -> None:
    found = admission.refusal(wanted, NODE, others, apparmor=False)
    assert (found or Refusal("", "")).reason == reason
    if found:
        assert found.message.startswith("Pod was rejected: ")
        assert text in found.message


SYSCTLS = [  # spec.md, "Kernel requirements": the last kernel without, and the first with it
    ("net.ipv4.ip_local_reserved_ports", "3.15.9", "3.16"),
    ("net.ipv4.tcp_keepalive_time", "4.4.300", "4.5.0"),
    ("net.ipv4.tcp_keepalive_intvl", "4.4.300", "4.5.0"),
    ("net.ipv4.tcp_keepalive_probes", "4.4.300", "4.5.0"),
    ("net.ipv4.tcp_fin_timeout", "4.5.7", "4.6.0-rc1"),
    ("net.ipv4.tcp_syncookies", "4.5.7", "4.6.0"),
    ("net.ipv4.tcp_rmem", "4.14.336-x", "4.15.0"),
    ("net.ipv4.tcp_wmem", "4.14.336-x", "4.15.0"),
]
OF_EVERY_KERNEL = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
]


@pytest.mark.parametrize(("name", "without", "with_it"), SYSCTLS)
def test_a_sysctl_needs_the_kernel_of_the_table(name: str, without: str, with_it: str) -> None:
    assert "needs kernel" in isolation.sysctl_problem(with_sysctl(name), without)
    assert isolation.sysctl_problem(with_sysctl(name), with_it) == ""


@pytest.mark.parametrize("name", OF_EVERY_KERNEL)
def test_what_every_kernel_has_needs_no_new_one(name: str) -> None:
    assert isolation.sysctl_problem(with_sysctl(name), "3.10.0") == ""


@pytest.mark.parametrize("name", [*OF_EVERY_KERNEL, *(row[0] for row in SYSCTLS)])
def test_sysctls_of_the_table_are_fine_on_a_new_kernel(name: str) -> None:
    assert isolation.sysctl_problem(with_sysctl(name), "6.12.0") == ""
    assert isolation.sysctl_problem(with_sysctl(name.replace(".", "/")), "6.12.0") == ""


ADVICE = "not allowlisted; allowedUnsafeSysctls of the node may name it"
ALLOWED = [  # allowedUnsafeSysctls, a sysctl, what is said of it
    (["kernel.msg*"], "kernel.msgmax", ""),
    (["kernel.msg*"], "kernel/msgmnb", ""),
    (["net/core/somaxconn"], "net.core.somaxconn", ""),
    (["net.core.somaxconn"], "net.core.somaxconnx", f'"net.core.somaxconnx" {ADVICE}'),
    (["kernel.msg*"], "kernel.sem", f'"kernel.sem" {ADVICE}'),
    (["net.ipv4.tcp_wmem"], "net.ipv4.tcp_wmem", ""),  # whatever the kernel
    ([], "kernel.msgmax", f'"kernel.msgmax" {ADVICE}'),
]


@pytest.mark.parametrize(("unsafe", "name", "said"), ALLOWED)
def test_the_administrator_of_the_node_allows_further_sysctls(
    unsafe: list[str], name: str, said: str
) -> None:
    shown = isolation.sysctl_problem(with_sysctl(name), "3.10", unsafe)
    assert shown == (f"forbidden sysctl: {said}" if said else "")
    found = admission.refusal(with_sysctl(name), NODE, [], unsafe_sysctls=unsafe)
    assert (found.reason if found else "") == ("SysctlForbidden" if said else "")


@pytest.mark.parametrize(
    ("name", "spec", "said"),
    [
        ("net.core.somaxconn", {"hostNetwork": True}, "not allowed with host net enabled"),
        ("kernel.msgmax", {"hostIPC": True}, "not allowed with host ipc enabled"),
        ("kernel.msgmax", {"hostNetwork": True}, ""),
    ],
)
def test_a_sysctl_that_is_allowed_is_never_the_hosts(
    name: str, spec: dict[str, bool], said: str
) -> None:
    wanted = with_sysctl(name)
    wanted = wanted.model_copy(update={"spec": wanted.spec.model_copy(update=spec)})
    shown = isolation.sysctl_problem(wanted, "6.1", ["net.core.*", "kernel.msg*"])
    assert shown == (f'forbidden sysctl: "{name}" {said}' if said else "")


@pytest.mark.looptime
async def test_a_pod_too_many_fails_with_its_reason(world: PodWorld) -> None:
    world.node = NODE
    big = named(asking("1500m"), "big", "uid-big")
    await world.start(big, asking("1"))
    await world.until(lambda: "app" in world.running())
    refused = world.status("web").status
    assert (refused.phase, refused.reason) == ("Failed", "OutOfcpu")
    assert ("web", "OutOfcpu", refused.message) in world.events
    await asyncio.sleep(60)
    assert len(world.running()) == 1
    assert world.reasons().count("OutOfcpu") == 1
    assert world.status("big").status.hostIP == "192.0.2.1"


@pytest.mark.looptime
async def test_pods_that_run_already_are_not_asked_again(world: PodWorld) -> None:
    await world.start(asking("1500m"), named(asking("1"), "other", "uid-other"))
    await world.until(lambda: len(world.runtime.sandboxes) == 2)
    await world.until(lambda: len(world.registry.targets()) == 2)
    before = world.runtime.sandboxes.keys()
    await world.stop()
    heir = world.successor()
    heir.node = NODE
    await heir.start(asking("1500m"), named(asking("1"), "other", "uid-other"))
    await asyncio.sleep(30)
    assert heir.runtime.sandboxes.keys() == before
    assert {p.status.phase for p in heir.registry.pods()} == {"Running"}


@pytest.mark.looptime
async def test_a_refused_pod_can_be_deleted(world: PodWorld) -> None:
    world.node = NODE
    await world.start(asking("5"))
    await world.until(lambda: world.status().status.phase == "Failed")
    world.source.set(asking("5", metadata={"deletionTimestamp": "2026-01-31T12:00:00Z"}))
    await world.until(lambda: bool(world.removed))


@pytest.mark.looptime
async def test_a_pod_over_makes_room_for_another(world: PodWorld) -> None:
    world.node = NODE
    first = asking("2", restartPolicy="Never")
    await world.start(first)
    await world.until(lambda: "app" in world.running())
    world.runtime.exit(world.running()["app"], 0)
    await world.until(lambda: world.status().status.phase == "Succeeded")
    world.source.set(first, named(asking("2"), "next", "uid-next"))
    await world.until(lambda: "app" in world.running())
    assert world.status("next").status.phase != "Failed"


# Conditions of the node, pod → refused? After the reference's eviction_manager_test.go, Admit.
PRESSED: list[tuple[list[str], Pod, bool]] = [
    ([], asking(), False),
    (["MemoryPressure"], asking(), True),
    (["MemoryPressure"], asking(memory="1Mi"), False),
    (["DiskPressure"], asking(memory="1Mi"), True),
    (["PIDPressure"], asking(memory="1Mi"), True),
    (["MemoryPressure", "DiskPressure"], asking(memory="1Mi"), True),
    (["DiskPressure"], asking(priority=2_000_000_000), False),
    (["DiskPressure"], asking(**STATIC), False),
]


@pytest.mark.parametrize(("under", "wanted", "refused"), PRESSED)
def test_a_node_under_pressure_takes_nobody_it_would_evict_next(
    under: list[str], wanted: Pod, refused: bool
) -> None:
    conditions = [NodeCondition(type=kind, status="True") for kind in under]
    status = NODE.status.model_copy(update={"conditions": conditions})
    found = admission.refusal(wanted, NODE.model_copy(update={"status": status}), [])
    message = f"Pod was rejected: The node had condition: [{', '.join(under)}]."
    assert found == (Refusal("Evicted", message) if refused else None)


def test_extended_resources_are_counted_unless_their_devices_are_given_here() -> None:
    foo, other = "example.com/foo", "example.com/other"
    allocatable = {**(NODE.status.allocatable or {}), foo: "2", "hugepages-2Mi": "0"}
    status = NODE.status.model_copy(update={"allocatable": allocatable})
    offering = NODE.model_copy(update={"status": status})

    def limited(**amounts: str) -> Pod:
        return pod(container_data("app", resources={"limits": amounts}), **TOLERANT)

    has, wants = named(limited(**{foo: "1"}), "has", "uid-has"), limited(**{foo: "2", other: "9"})
    message = (
        f"Pod was rejected: Node didn't have enough resource: {foo}, requested: 2, used: 1, "
        "capacity: 2"
    )
    assert admission.refusal(wants, offering, []) is None
    assert admission.refusal(wants, offering, [has]) == Refusal(f"OutOf{foo}", message)
    assert admission.refusal(wants, offering, [has], given_here=lambda name: name == foo) is None


def test_a_pod_whose_devices_cannot_be_given_is_refused_with_the_reason() -> None:
    assert admission.unassigned("no device") == Refusal(
        "UnexpectedAdmissionError", "Pod was rejected: no device"
    )


@pytest.mark.looptime
async def test_until_the_node_is_known_nothing_new_starts_and_nothing_that_runs_ends(
    world: PodWorld,
) -> None:
    await world.start(asking())
    await world.until(lambda: "app" in world.running())
    before = world.running()
    await world.stop()
    heir = world.successor()
    heir.source.name = podspec.API
    heir.node = None
    unsafe = named(with_sysctl("kernel.msgmax"), "unsafe", "uid-unsafe")
    await heir.start(asking(), unsafe, named(asking(), "fine", "uid-fine"))
    await asyncio.sleep(120)
    assert heir.running() == before
    assert heir.status("unsafe").status.phase != "Failed"

    heir.node = NODE
    heir.workers.node_known()
    await heir.until(lambda: len(heir.runtime.sandboxes) == 2, within_s=2)
    assert heir.status("unsafe").status.reason == "SysctlForbidden"
    assert {sandbox.spec.name for sandbox in heir.runtime.sandboxes.values()} == {"web", "fine"}
    assert set(before.values()) <= heir.runtime.containers.keys()
