"""The agent's specs → CRI request messages; pure.

Knows the defaults that a CRI client must send: containers have their own PID namespace, the sandbox
runs under the runtime's default seccomp profile, and kernel files that a container must not see or
write are masked.
"""

from __future__ import annotations

from typing import Any

from nodeagent.runtime import cri_pb2 as pb
from nodeagent.runtime.base import (
    ContainerSpec,
    LinuxResources,
    Login,
    Mount,
    SandboxSpec,
)
from nodeagent.runtime.isolation import (
    SeccompKind,
    SeccompSetting,
    SELinuxLabel,
    UserNamespace,
)

# The lists that the reference agent sends for its default proc mount (securitycontext/util.go).
MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

_PROPAGATION = {
    "private": pb.PROPAGATION_PRIVATE,
    "host_to_container": pb.PROPAGATION_HOST_TO_CONTAINER,
    "bidirectional": pb.PROPAGATION_BIDIRECTIONAL,
}
_PROFILES = {
    SeccompKind.RUNTIME_DEFAULT: pb.SecurityProfile.RuntimeDefault,
    SeccompKind.UNCONFINED: pb.SecurityProfile.Unconfined,
    SeccompKind.LOCALHOST: pb.SecurityProfile.Localhost,
}


def sandbox_config(spec: SandboxSpec) -> Any:
    """The PodSandboxConfig of `spec`; without DNS settings the runtime uses the host's."""
    config = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(
            name=spec.name, uid=spec.uid, namespace=spec.namespace, attempt=spec.attempt
        ),
        hostname=spec.hostname,
        log_directory=spec.log_directory,
        port_mappings=[
            pb.PortMapping(
                protocol=pb.Protocol.Value(port.protocol),
                container_port=port.container_port,
                host_port=port.host_port,
                host_ip=port.host_ip,
            )
            for port in spec.port_mappings
        ],
        labels=spec.labels,
        annotations=spec.annotations,
        linux=pb.LinuxPodSandboxConfig(
            cgroup_parent=spec.cgroup_parent,
            security_context=_sandbox_security(spec),
            sysctls=spec.sysctls,
        ),
    )
    if spec.dns_servers or spec.dns_searches or spec.dns_options:
        config.dns_config.CopyFrom(
            pb.DNSConfig(
                servers=spec.dns_servers, searches=spec.dns_searches, options=spec.dns_options
            )
        )
    return config


def creation(sandbox_id: str, spec: ContainerSpec, sandbox: SandboxSpec) -> Any:
    """The request for a container; ValueError for what no message can hold. With a hundred thousand
    variables it takes 50 ms.
    """
    return pb.CreateContainerRequest(
        pod_sandbox_id=sandbox_id,
        config=container_config(spec, sandbox),
        sandbox_config=sandbox_config(sandbox),
    )


def container_config(spec: ContainerSpec, sandbox: SandboxSpec) -> Any:
    """The ContainerConfig of `spec` in `sandbox`, whose namespaces it shares."""
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=spec.name, attempt=spec.attempt),
        image=pb.ImageSpec(image=spec.image),
        command=spec.command,
        args=spec.args,
        working_dir=spec.working_dir,
        envs=[pb.KeyValue(key=key, value=value.encode()) for key, value in spec.env],
        mounts=[_mount(mount, sandbox.user_namespace) for mount in spec.mounts],
        devices=[pb.Device(**device._asdict()) for device in spec.devices],
        CDI_devices=[pb.CDIDevice(name=name) for name in spec.cdi_devices],
        labels=spec.labels,
        annotations=spec.annotations,
        log_path=spec.log_path,
        stdin=spec.stdin,
        stdin_once=spec.stdin_once,
        tty=spec.tty,
        linux=pb.LinuxContainerConfig(
            resources=resources(spec.resources),
            security_context=_container_security(spec, sandbox),
        ),
        stop_signal=_signal(spec.stop_signal),
    )


def resources(wanted: LinuxResources) -> Any:
    """The LinuxContainerResources of `wanted`; 0, which CRI reads as "not set", for None."""
    return pb.LinuxContainerResources(
        cpu_period=wanted.cpu_period_usec or 0,
        cpu_quota=wanted.cpu_quota_usec or 0,
        cpu_shares=wanted.cpu_shares or 0,
        memory_limit_in_bytes=wanted.memory_limit_bytes or 0,
        oom_score_adj=wanted.oom_score_adj or 0,
        unified=wanted.unified,
        hugepage_limits=[
            pb.HugepageLimit(page_size=size, limit=limit)
            for size, limit in wanted.hugepage_bytes.items()
        ],
    )


def told_resources(status: Any) -> LinuxResources | None:
    """What a ContainerStatus says of them, the other way round; None: nothing."""
    if not status.HasField("resources"):
        return None
    linux = status.resources.linux
    return LinuxResources(
        cpu_shares=linux.cpu_shares or None,
        cpu_quota_usec=max(linux.cpu_quota, 0) or None,
        cpu_period_usec=linux.cpu_period or None,
        memory_limit_bytes=max(linux.memory_limit_in_bytes, 0) or None,
    )


def image_spec(reference: str) -> Any:
    return pb.ImageSpec(image=reference)


def pull(reference: str, login: Login | None) -> Any:
    auth = login and pb.AuthConfig(username=login.user, password=login.password.reveal())
    return pb.PullImageRequest(image=image_spec(reference), auth=auth)


def _sandbox_security(spec: SandboxSpec) -> Any:
    return pb.LinuxSandboxSecurityContext(
        namespace_options=_namespaces(spec),
        run_as_user=_int64(spec.run_as_user),
        run_as_group=_int64(spec.run_as_group),
        supplemental_groups=spec.supplemental_groups,
        privileged=spec.privileged,
        seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
        supplemental_groups_policy=_groups_policy(spec),
        selinux_options=_selinux(spec.selinux),
    )


def _container_security(spec: ContainerSpec, sandbox: SandboxSpec) -> Any:
    shown = spec.privileged or spec.unmasked
    return pb.LinuxContainerSecurityContext(
        capabilities=pb.Capability(
            add_capabilities=spec.add_capabilities, drop_capabilities=spec.drop_capabilities
        ),
        privileged=spec.privileged,
        namespace_options=_namespaces(sandbox, spec.pid_of),
        run_as_user=_int64(spec.run_as_user),
        run_as_group=_int64(spec.run_as_group),
        supplemental_groups=spec.supplemental_groups,
        readonly_rootfs=spec.readonly_rootfs,
        no_new_privs=spec.no_new_privileges,
        masked_paths=() if shown else MASKED_PATHS,
        readonly_paths=() if shown else READONLY_PATHS,
        seccomp=_profile(spec.seccomp),
        apparmor=_profile(spec.apparmor) if spec.apparmor else None,
        supplemental_groups_policy=_groups_policy(sandbox),
        selinux_options=_selinux(spec.selinux),
    )


def _selinux(label: SELinuxLabel | None) -> Any:
    return label and pb.SELinuxOption(
        user=label.user, role=label.role, type=label.type, level=label.level
    )


def _signal(name: str) -> Any:
    """CRI writes SIGRTMIN+1 as SIGRTMINPLUS1."""
    if not name:
        return pb.RUNTIME_DEFAULT
    return pb.Signal.Value(name.replace("+", "PLUS").replace("-", "MINUS"))


def _groups_policy(spec: SandboxSpec) -> Any:
    return pb.Strict if spec.strict_groups else pb.Merge


def _namespaces(spec: SandboxSpec, pid_of: str = "") -> Any:
    """`pid_of` counts where containers have processes of their own."""
    own = pb.TARGET if pid_of else pb.CONTAINER
    pid = pb.NODE if spec.host_pid else pb.POD if spec.shared_pid else own
    return pb.NamespaceOption(
        network=pb.NODE if spec.host_network else pb.POD,
        pid=pid,
        ipc=pb.NODE if spec.host_ipc else pb.POD,
        target_id=pid_of if pid == pb.TARGET else "",
        userns_options=_users(spec.user_namespace),
    )


def _users(namespace: UserNamespace | None) -> Any:
    if namespace is None:
        return pb.UserNamespace(mode=pb.NODE)
    mapped = _mapping(namespace)
    return pb.UserNamespace(mode=pb.POD, uids=mapped, gids=mapped)


def _mapping(namespace: UserNamespace | None) -> list[Any]:
    if namespace is None:
        return []
    first, length = namespace.first_id, namespace.length
    return [pb.IDMapping(host_id=first, container_id=0, length=length)]


def _profile(setting: SeccompSetting) -> Any:
    return pb.SecurityProfile(
        profile_type=_PROFILES[setting.kind], localhost_ref=setting.localhost_path
    )


def _mount(mount: Mount, namespace: UserNamespace | None) -> Any:
    return pb.Mount(
        container_path=mount.container_path,
        host_path=mount.host_path,
        readonly=mount.readonly,
        selinux_relabel=mount.selinux_relabel,
        propagation=_PROPAGATION[mount.propagation],
        recursive_read_only=mount.recursive_readonly,
        image=pb.ImageSpec(image=mount.image) if mount.image else None,
        uidMappings=_mapping(namespace),
        gidMappings=_mapping(namespace),
    )


def _int64(value: int | None) -> Any:
    return None if value is None else pb.Int64Value(value=value)
