"""The server's side of CRI: requests → the agent's values, values → answers.

Written apart from the agent's own conversions, so that a field mixed up there does not cancel out.
"""

from __future__ import annotations

import json
from typing import Any

from nodeagent.runtime import base, isolation
from nodeagent.runtime import cri_pb2 as pb
from nodeagent.runtime.base import ContainerUsage, SandboxUsage
from nodeagent.runtime.endpoint import StreamAddress, StreamOptions

STATES = {
    base.ContainerState.CREATED: pb.CONTAINER_CREATED,
    base.ContainerState.RUNNING: pb.CONTAINER_RUNNING,
    base.ContainerState.EXITED: pb.CONTAINER_EXITED,
    base.ContainerState.UNKNOWN: pb.CONTAINER_UNKNOWN,
}

EVENTS = {
    base.EventKind.CREATED: pb.CONTAINER_CREATED_EVENT,
    base.EventKind.STARTED: pb.CONTAINER_STARTED_EVENT,
    base.EventKind.STOPPED: pb.CONTAINER_STOPPED_EVENT,
    base.EventKind.DELETED: pb.CONTAINER_DELETED_EVENT,
}


def sandbox_spec(config: Any) -> base.SandboxSpec:
    namespaces = config.linux.security_context.namespace_options
    return base.SandboxSpec(
        name=config.metadata.name,
        namespace=config.metadata.namespace,
        uid=config.metadata.uid,
        attempt=config.metadata.attempt,
        hostname=config.hostname,
        log_directory=config.log_directory,
        cgroup_parent=config.linux.cgroup_parent,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
        host_network=namespaces.network == pb.NODE,
    )


def container_spec(config: Any) -> base.ContainerSpec:
    return base.ContainerSpec(
        name=config.metadata.name,
        attempt=config.metadata.attempt,
        image=config.image.image,
        command=tuple(config.command),
        args=tuple(config.args),
        pid_of=config.linux.security_context.namespace_options.target_id,
        env=tuple((item.key, item.value.decode()) for item in config.envs),
        devices=tuple(
            base.HostDevice(one.container_path, one.host_path, one.permissions)
            for one in config.devices
        ),
        cdi_devices=tuple(one.name for one in config.CDI_devices),
        labels=dict(config.labels),
        annotations=dict(config.annotations),
        log_path=config.log_path,
        resources=resources(config.linux.resources),
    )


def resources(message: Any) -> base.LinuxResources:
    return base.LinuxResources(
        cpu_shares=message.cpu_shares or None,
        cpu_quota_usec=message.cpu_quota or None,
        cpu_period_usec=message.cpu_period or None,
        memory_limit_bytes=message.memory_limit_in_bytes or None,
        oom_score_adj=message.oom_score_adj or None,
        unified=dict(message.unified),
        hugepage_bytes={one.page_size: one.limit for one in message.hugepage_limits},
    )


def _linux(resources: base.LinuxResources) -> Any:
    return pb.LinuxContainerResources(
        cpu_shares=resources.cpu_shares or 0,
        cpu_quota=resources.cpu_quota_usec or 0,
        cpu_period=resources.cpu_period_usec or 0,
        memory_limit_in_bytes=resources.memory_limit_bytes or 0,
    )


def sandbox_row(row: base.Sandbox) -> Any:
    return pb.PodSandbox(**_sandbox_fields(row))


def sandbox_status(detail: base.SandboxDetail) -> Any:
    first, *others = [*detail.ips] or [""]
    network = pb.PodSandboxNetworkStatus(
        ip=first, additional_ips=[pb.PodIP(ip=ip) for ip in others]
    )
    status = pb.PodSandboxStatus(network=network, **_sandbox_fields(detail.sandbox))
    return pb.PodSandboxStatusResponse(status=status, info=_info(detail.pid))


def container_row(row: base.Container) -> Any:
    return pb.Container(pod_sandbox_id=row.sandbox_id, **_container_fields(row))


def container_status(detail: base.ContainerDetail) -> Any:
    status = pb.ContainerStatus(
        started_at=detail.started_at_ns,
        finished_at=detail.finished_at_ns,
        exit_code=detail.exit_code,
        reason=detail.reason,
        message=detail.message,
        log_path=detail.log_path,
        resources=detail.resources and pb.ContainerResources(linux=_linux(detail.resources)),
        **_container_fields(detail.container),
    )
    return pb.ContainerStatusResponse(status=status, info=_info(detail.pid))


def container_stats(usage: ContainerUsage) -> Any:
    layer = pb.FilesystemUsage(
        timestamp=usage.writable_layer_timestamp_ns,
        used_bytes=_uint(usage.writable_layer_used_bytes),
        inodes_used=_uint(usage.writable_layer_inodes_used),
    )
    attributes = pb.ContainerAttributes(
        id=usage.id, metadata=pb.ContainerMetadata(name=usage.name), labels=usage.labels
    )
    return pb.ContainerStats(attributes=attributes, writable_layer=layer, **_shared(usage))


def sandbox_stats(usage: SandboxUsage) -> Any:
    metadata = pb.PodSandboxMetadata(
        name=usage.total.name, uid=usage.uid, namespace=usage.namespace
    )
    interfaces = [
        pb.NetworkInterfaceUsage(
            name=item.name,
            rx_bytes=_uint(item.rx_bytes),
            rx_errors=_uint(item.rx_errors),
            tx_bytes=_uint(item.tx_bytes),
            tx_errors=_uint(item.tx_errors),
        )
        for item in usage.interfaces
    ]
    return pb.PodSandboxStats(
        attributes=pb.PodSandboxAttributes(
            id=usage.total.id, metadata=metadata, labels=usage.total.labels
        ),
        linux=pb.LinuxPodSandboxStats(
            network=pb.NetworkUsage(
                timestamp=usage.network_timestamp_ns,
                default_interface=interfaces[0],
                interfaces=interfaces[1:],
            ),
            process=pb.ProcessUsage(process_count=_uint(usage.process_count)),
            containers=[container_stats(item) for item in usage.containers],
            **_shared(usage.total),
        ),
    )


def image(known: base.Image) -> Any:
    return pb.Image(
        id=known.id,
        repo_tags=known.tags,
        repo_digests=known.digests,
        size=known.size_bytes,
        uid=None if known.uid is None else pb.Int64Value(value=known.uid),
        username=known.username,
    )


def filesystem(usage: base.FilesystemUsage) -> Any:
    return pb.FilesystemUsage(
        timestamp=usage.timestamp_ns,
        fs_id=pb.FilesystemIdentifier(mountpoint=usage.mountpoint),
        used_bytes=_uint(usage.used_bytes),
        inodes_used=_uint(usage.inodes_used),
    )


def _sandbox_fields(row: base.Sandbox) -> dict[str, Any]:
    ready = row.state is base.SandboxState.READY
    return {
        "id": row.id,
        "metadata": pb.PodSandboxMetadata(
            name=row.name, uid=row.uid, namespace=row.namespace, attempt=row.attempt
        ),
        "state": pb.SANDBOX_READY if ready else pb.SANDBOX_NOTREADY,
        "created_at": row.created_at_ns,
        "labels": row.labels,
        "annotations": row.annotations,
    }


def _container_fields(row: base.Container) -> dict[str, Any]:
    return {
        "id": row.id,
        "metadata": pb.ContainerMetadata(name=row.name, attempt=row.attempt),
        "image": pb.ImageSpec(image=row.image),
        "image_ref": row.image_ref,
        "state": STATES[row.state],
        "created_at": row.created_at_ns,
        "labels": row.labels,
        "annotations": row.annotations,
    }


def _shared(usage: ContainerUsage) -> dict[str, Any]:
    return {
        "cpu": pb.CpuUsage(
            timestamp=usage.cpu_timestamp_ns,
            usage_core_nano_seconds=_uint(usage.cpu_usage_core_ns),
            usage_nano_cores=_uint(usage.cpu_usage_nano_cores),
            psi=_psi(usage.cpu_pressure),
        ),
        "memory": pb.MemoryUsage(
            timestamp=usage.memory_timestamp_ns,
            working_set_bytes=_uint(usage.memory_working_set_bytes),
            available_bytes=_uint(usage.memory_available_bytes),
            usage_bytes=_uint(usage.memory_usage_bytes),
            rss_bytes=_uint(usage.memory_rss_bytes),
            page_faults=_uint(usage.page_faults),
            major_page_faults=_uint(usage.major_page_faults),
            psi=_psi(usage.memory_pressure),
        ),
        "io": pb.IoUsage(psi=_psi(usage.io_pressure)),
    }


def _psi(pressure: Any) -> Any:
    if pressure is None:
        return None
    full = None if pressure.full is None else _psi_data(pressure.full)
    return pb.PsiStats(Some=_psi_data(pressure.some), Full=full)


def _psi_data(line: Any) -> Any:
    return pb.PsiData(
        Total=line.total_usec * 1000, Avg10=line.avg10, Avg60=line.avg60, Avg300=line.avg300
    )


def _info(pid: int | None) -> dict[str, str]:
    return {"info": json.dumps({"pid": pid or 0, "runtimeSpec": {}})}


def _uint(value: int | None) -> Any:
    return None if value is None else pb.UInt64Value(value=value)


def container_event(event: base.ContainerEvent) -> Any:
    return pb.ContainerEventResponse(
        container_id=event.id, container_event_type=EVENTS[event.kind], created_at=event.at_ns
    )


def handler(name: str, features: isolation.RuntimeFeatures) -> Any:
    own = pb.RuntimeHandlerFeatures(
        recursive_read_only_mounts=name in features.recursive_readonly,
        user_namespaces=name in features.user_namespaces,
    )
    return pb.RuntimeHandler(name=name, features=own)


def stream_options(request: Any) -> StreamOptions:
    return StreamOptions(request.stdin, request.stdout, request.stderr, request.tty)


def stream_url(address: StreamAddress) -> str:
    return f"http://{address.host}:{address.port}{address.target}"
