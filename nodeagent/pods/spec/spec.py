"""A pod as the API defines it → the sandbox and containers requested from the runtime; pure.

Names, labels, cgroups, logs, resources and the security context. The paths of volumes on the host,
the pod's addresses and its seccomp profile are parameters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from nodeagent.pods.actions import StartContainer
from nodeagent.pods.resize.sizes import container_size, definition, pod_size
from nodeagent.pods.spec import dns, env, isolation, mounts
from nodeagent.pods.spec.dns import NO_DNS, DnsSettings
from nodeagent.pods.spec.env import Files
from nodeagent.pods.spec.policy import (
    DEFAULT_POLICY,
    NodeMemory,
    ResourcePolicy,
    container_unified,
    hugepage_bytes,
)
from nodeagent.pods.spec.references import Objects
from nodeagent.runtime.base import (
    ContainerSpec,
    LinuxResources,
    PortMapping,
    SandboxSpec,
)
from nodeagent.runtime.isolation import UNCONFINED, SeccompSetting
from orch.wire import names, quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.podspec import (
    BEST_EFFORT,
    BURSTABLE,
    DEFAULT_GRACE_S,
    GUARANTEED,
    all_containers,
)
from orch.wire.podrules.resources import HUGE_PAGES
from orch.wire.records.isolation import PodSecurityContext, SecurityContext
from orch.wire.records.pods import (
    Container,
    ImageVolume,
    Pod,
    ResourceRequirements,
)
from orch.wire.records.variables import EnvVarSource

MIN_CPU_SHARES = 2
MAX_CPU_SHARES = 262_144
_FILE_NAME_MAX = 255
KERNEL_WITH_RECURSIVE_READONLY = (5, 12)
# Below the cgroup of all pods; Guaranteed pods are in that cgroup itself.
QOS_CGROUPS = {GUARANTEED: "", BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}
_OOM_GUARANTEED, _OOM_BEST_EFFORT = -997, 1000


@dataclass(frozen=True, slots=True)
class PodSettings:
    """The settings that all pods of this node share; directories are absolute."""

    node_name: str
    root_dir: str
    pod_logs_dir: str
    cgroup_parent: str = "/orchpods"
    host_ip: str = ""
    memory_capacity_bytes: int = 0
    policy: ResourcePolicy = DEFAULT_POLICY
    kernel_version: str = ""
    apparmor: bool = False  # whether this host has AppArmor enabled
    dns: DnsSettings = NO_DNS
    api_server: Mapping[str, str] = field(default_factory=dict)  # the variables that lead to it
    unsafe_sysctls: tuple[str, ...] = ()  # allowed beside the safe ones; may end in *
    allocatable: Mapping[str, str] = field(default_factory=dict)  # of the node, once known


@dataclass(frozen=True, slots=True)
class ContainerContext:
    """What is known about the pod when a container is created."""

    volumes: Mapping[str, str] = field(default_factory=dict)  # volume name → path on the host
    pod_ips: Sequence[str] = ()
    seccomp: SeccompSetting = UNCONFINED
    objects: Objects = field(default_factory=dict)
    env_files: Files = field(default_factory=dict)


def log_directory(settings: PodSettings, namespace: str, name: str, uid: str) -> str:
    """A name that leaves no room is cut; the uid tells pods apart."""
    room = _FILE_NAME_MAX - len(f"{namespace}__{uid}")
    return f"{settings.pod_logs_dir}/{namespace}_{name[:room]}_{uid}"


_GRACE_MAX_S = 2**31 - 1  # deadlines of gRPC overflow far above it, and have passed at once


def cgroup_path(parent: str, pod: Pod) -> str:
    """The cgroup of a pod: `<parent>/burstable/pod<uid>`."""
    below = QOS_CGROUPS[podspec.qos_class(pod)]
    return str(PurePosixPath(parent, below, f"pod{pod.metadata.uid or ''}"))


def grace_period_s(pod: Pod) -> int:
    """How long a graceful stop may take; a deletion in progress has set its own."""
    for given in (pod.metadata.deletionGracePeriodSeconds, pod.spec.terminationGracePeriodSeconds):
        if given is not None:
            return min(given, _GRACE_MAX_S) if given >= 0 else 1  # as the reference's agent
    return DEFAULT_GRACE_S


def sandbox_spec(pod: Pod, settings: PodSettings, *, attempt: int) -> SandboxSpec:
    """Without what it resolves names by. SpecError when the definition cannot be fulfilled."""
    meta, spec = pod.metadata, pod.spec
    namespace, uid = meta.namespace or "", meta.uid or ""
    security = spec.securityContext or PodSecurityContext()
    host_network = bool(spec.hostNetwork)
    cgroup_parent = cgroup_path(settings.cgroup_parent, pod)
    return SandboxSpec(
        name=meta.name,
        namespace=namespace,
        uid=uid,
        attempt=attempt,
        hostname="" if host_network else dns.kernel_name(pod, settings.dns),
        log_directory=log_directory(settings, namespace, meta.name, uid),
        cgroup_parent=cgroup_parent,
        labels={**isolation.for_runtime(meta.labels), **_identity(pod, settings)},
        annotations={
            **isolation.for_runtime(meta.annotations),
            names.ANNOTATION_CONFIG_SOURCE: meta.annotation(names.ANNOTATION_CONFIG_SOURCE),
            names.RUNTIME_ANNOTATION_GRACE_PERIOD: str(grace_period_s(pod)),
            names.RUNTIME_ANNOTATION_CGROUP_PARENT: cgroup_parent,
            names.RUNTIME_ANNOTATION_POD_SIZE: pod_size(pod).text(),
        },
        port_mappings=() if host_network else _port_mappings(pod),
        sysctls={s.name: s.value for s in security.sysctls or ()},
        host_network=host_network,
        host_pid=bool(spec.hostPID),
        host_ipc=bool(spec.hostIPC),
        shared_pid=bool(spec.shareProcessNamespace),
        privileged=any(_is_privileged(c) for c in all_containers(pod)),
        run_as_user=security.runAsUser,
        run_as_group=security.runAsGroup,
        supplemental_groups=_groups(security),
        strict_groups=security.supplementalGroupsPolicy == "Strict",
        selinux=isolation.selinux(security.seLinuxOptions),
    )


def container_spec(
    pod: Pod,
    container: Container,
    start: StartContainer,
    settings: PodSettings,
    context: ContainerContext,
) -> ContainerSpec:
    """SpecError when the container's definition cannot be fulfilled."""
    room = env.Room()
    variables = _variables(pod, container, settings, context, room)
    known = dict(variables)
    pod_security = pod.spec.securityContext or PodSecurityContext()
    security = container.securityContext or SecurityContext()
    capabilities = security.capabilities
    return ContainerSpec(
        name=container.name,
        attempt=start.attempt,
        image=container.image,
        command=tuple(room.take(env.expand(part, known)) for part in container.command or ()),
        args=tuple(room.take(env.expand(part, known)) for part in container.args or ()),
        working_dir=container.workingDir or "",
        env=variables,
        mounts=mounts.container_mounts(
            container,
            context.volumes,
            {name: image.reference for name, image in image_volumes(pod).items()},
            known,
            recursive_possible=recursion_possible(settings),
        ),
        labels={**_identity(pod, settings), names.RUNTIME_LABEL_CONTAINER_NAME: container.name},
        annotations={
            names.RUNTIME_ANNOTATION_CONTAINER_HASH: definition(
                container_hash(container), container_size(pod, container)
            ),
            names.RUNTIME_ANNOTATION_RESTART_COUNT: str(start.attempt),
            names.RUNTIME_ANNOTATION_BACKOFF_STEP: str(start.backoff_step),
            **({names.RUNTIME_ANNOTATION_ROUND: str(start.round)} if start.round else {}),
        },
        log_path=f"{container.name}/{start.attempt}.log",
        stdin=bool(container.stdin),
        stdin_once=bool(container.stdinOnce),
        tty=bool(container.tty),
        resources=container_resources(pod, container, node_memory(settings), settings.policy),
        seccomp=context.seccomp,
        apparmor=isolation.apparmor(pod, container, enabled=settings.apparmor),
        privileged=_is_privileged(container),
        selinux=isolation.selinux(security.seLinuxOptions or pod_security.seLinuxOptions),
        unmasked=security.procMount == "Unmasked",
        stop_signal=(container.lifecycle and container.lifecycle.stopSignal) or "",
        no_new_privileges=security.allowPrivilegeEscalation is False,
        readonly_rootfs=bool(security.readOnlyRootFilesystem),
        run_as_user=_first(security.runAsUser, pod_security.runAsUser),
        run_as_group=_first(security.runAsGroup, pod_security.runAsGroup),
        supplemental_groups=_groups(pod_security),
        add_capabilities=tuple((capabilities and capabilities.add) or ()),
        drop_capabilities=tuple((capabilities and capabilities.drop) or ()),
    )


def _variables(
    pod: Pod, container: Container, settings: PodSettings, context: ContainerContext, room: env.Room
) -> tuple[tuple[str, str], ...]:
    """The container's environment."""
    addresses = _addresses(pod, settings, context.pod_ips)

    def value_from(source: EnvVarSource) -> str | None:
        if source.fieldRef is not None:
            return env.pod_field(pod, source.fieldRef.fieldPath, addresses)
        if source.resourceFieldRef is not None:
            wanted, most = source.resourceFieldRef, settings.allocatable
            return env.resource_field(pod, container, wanted, most)
        return None

    given, files = settings.api_server, context.env_files
    return env.environment(container, value_from, context.objects, room, given, files)


def recursion_possible(settings: PodSettings) -> bool:
    """Whether mounts below a volume can be made read-only with it."""
    return isolation.is_at_least(settings.kernel_version, KERNEL_WITH_RECURSIVE_READONLY)


def node_memory(settings: PodSettings) -> NodeMemory:
    allocatable = settings.allocatable.get("memory", 0)
    pages = frozenset(
        name
        for name, amount in settings.allocatable.items()
        if name.startswith(HUGE_PAGES) and quantity.to_bytes(amount)
    )
    return NodeMemory(settings.memory_capacity_bytes, quantity.to_bytes(allocatable), pages)


def container_resources(
    pod: Pod,
    container: Container,
    memory: NodeMemory,
    policy: ResourcePolicy = DEFAULT_POLICY,
) -> LinuxResources:
    """Shares from the cpu request, quota from its limit, the memory limit, the OOM adjustment."""
    limits, requests = podspec.effective_limits(pod, container), podspec.requests(container)
    return LinuxResources(
        cpu_shares=cpu_shares(quantity.to_milli(requests.get("cpu", 0))),
        cpu_quota_usec=policy.quota_usec(quantity.to_milli(limits.get("cpu", 0))),
        cpu_period_usec=policy.cfs_period_usec if "cpu" in limits and policy.cfs_quota else None,
        memory_limit_bytes=quantity.to_bytes(limits["memory"]) if "memory" in limits else None,
        oom_score_adj=oom_score_adjustment(pod, container, memory.capacity_bytes),
        unified=container_unified(pod, container, policy, memory),
        hugepage_bytes=hugepage_bytes(pod, container, memory),
    )


def oom_score_adjustment(pod: Pod, container: Container, memory_capacity_bytes: int) -> int:
    """-997 to 1000 (kubelet/qos/policy.go); Burstable: the larger the request, the lower."""
    match podspec.qos_class(pod):
        case podspec.GUARANTEED:
            return _OOM_GUARANTEED
        case podspec.BEST_EFFORT:
            return _OOM_BEST_EFFORT
    wanted_bytes = _memory_bytes(container) + _spare_bytes(pod)
    share = 1000 * wanted_bytes // memory_capacity_bytes if memory_capacity_bytes else 0
    return min(max(1000 - share, 1000 + _OOM_GUARANTEED), 999)


def _memory_bytes(container: Container) -> int:
    return quantity.to_bytes(podspec.requests(container).get("memory", 0))


def _spare_bytes(pod: Pod) -> int:
    """Each container's part of what the pod requests as a whole beyond its containers."""
    whole = podspec.pod_level(pod, "requests").get("memory")
    if whole is None:
        return 0
    containers = podspec.lasting(pod)
    spare = quantity.to_bytes(whole) - sum(map(_memory_bytes, containers))
    return max(spare, 0) // len(containers)


def cpu_shares(milli: int) -> int:
    return min(max(milli * 1024 // 1000, MIN_CPU_SHARES), MAX_CPU_SHARES)


def image_volumes(pod: Pod) -> dict[str, ImageVolume]:
    """The pod's volumes that are images, by name."""
    return {v.name: v.image for v in pod.spec.volumes or () if v.image is not None}


def _identity(pod: Pod, settings: PodSettings) -> dict[str, str]:
    return {
        names.RUNTIME_LABEL_POD_NAME: pod.metadata.name,
        names.RUNTIME_LABEL_POD_NAMESPACE: pod.metadata.namespace or "",
        names.RUNTIME_LABEL_POD_UID: pod.metadata.uid or "",
        names.RUNTIME_LABEL_NODE_NAME: settings.node_name,
    }


def _addresses(pod: Pod, settings: PodSettings, pod_ips: Sequence[str]) -> dict[str, str]:
    own = [settings.host_ip] if pod.spec.hostNetwork else list(pod_ips)
    return {
        "status.hostIP": settings.host_ip,
        "status.hostIPs": settings.host_ip,
        "status.podIP": own[0] if own else "",
        "status.podIPs": ",".join(own),
    }


def _port_mappings(pod: Pod) -> tuple[PortMapping, ...]:
    return tuple(
        PortMapping(
            port.containerPort, port.hostPort or 0, port.protocol or "TCP", port.hostIP or ""
        )
        for container in all_containers(pod)
        for port in container.ports or ()
    )


def _groups(security: PodSecurityContext) -> tuple[int, ...]:
    own = [security.fsGroup] if security.fsGroup is not None else []
    return (*own, *(security.supplementalGroups or ()))


def _is_privileged(container: Container) -> bool:
    return bool(container.securityContext and container.securityContext.privileged)


def _first(own: int | None, inherited: int | None) -> int | None:
    return inherited if own is None else own


def container_hash(container: Container) -> str:
    """16 hexadecimal digits over the container's definition without its resources, which change
    while it runs; stable across agent upgrades.

    Empty values are left out, so that a newer agent whose records have more fields computes the
    same value and restarts no container.
    """
    return _digest(container.model_copy(update={"resources": None, "resizePolicy": None}))


def former_hash(container: Container, resources: ResourceRequirements | None) -> str:
    """The hash that agents wrote that could not resize, given what the container had then."""
    if resources is None:
        return _digest(container)
    return _digest(container.model_copy(update={"resources": resources}))


def _digest(container: Container) -> str:
    data = _meaningful(container.to_wire())
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _meaningful(data: Any) -> Any:
    if isinstance(data, dict):
        kept = {key: _meaningful(value) for key, value in data.items()}
        return {key: value for key, value in kept.items() if value not in (None, "", [], {})}
    if isinstance(data, list):
        return [_meaningful(item) for item in data]
    return data
