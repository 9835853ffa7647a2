"""Observed pod → what the sampler measures of it; pure."""

from __future__ import annotations

from nodeagent.pods import spec
from nodeagent.pods.observed import ObservedPod, is_ready
from nodeagent.pods.spec import PodSettings
from nodeagent.pods.volumes import KINDS, is_in_memory
from nodeagent.runtime.base import ContainerDetail, ContainerState
from nodeagent.stats.samples import ContainerTarget, PodTarget, VolumeTarget
from orch.wire.pods import Pod, Volume


def pod_target(view: ObservedPod, pod: Pod | None, settings: PodSettings) -> PodTarget | None:
    """None when nothing of the pod runs."""
    sandbox = view.sandbox
    ready = sandbox if sandbox and is_ready(sandbox) else None
    running = [c for c in view.containers if c.container.state is ContainerState.RUNNING]
    if ready is None and not running:
        return None
    log_dir = spec.log_directory(settings, view.namespace, view.name, view.uid)
    return PodTarget(
        namespace=view.namespace,
        name=view.name,
        uid=view.uid,
        cgroup_parent=view.cgroup_parent() or f"{settings.cgroup_parent}/pod{view.uid}",
        sandbox_id=ready.sandbox.id if ready else None,
        sandbox_pid=ready.pid if ready else None,
        started_at_ns=view.sandboxes[-1].sandbox.created_at_ns if view.sandboxes else 0,
        containers=tuple(_container_target(c, log_dir) for c in running),
        log_dir=log_dir,
        volumes=_volumes(view.uid, pod, settings),
        host_network=bool(pod and pod.spec.hostNetwork),
    )


def _container_target(detail: ContainerDetail, log_dir: str) -> ContainerTarget:
    return ContainerTarget(
        name=detail.container.name,
        id=detail.container.id,
        started_at_ns=detail.started_at_ns,
        log_dir=f"{log_dir}/{detail.container.name}",
        image=detail.container.image,
    )


def _volumes(uid: str, pod: Pod | None, settings: PodSettings) -> tuple[VolumeTarget, ...]:
    listed = [(volume, _kind(volume)) for volume in (pod and pod.spec.volumes) or ()]
    return tuple(
        VolumeTarget(volume.name, _path(uid, volume, kind, settings), kind, is_in_memory(volume))
        for volume, kind in listed
        if kind and volume.image is None  # that is the image's, and counted there
    )


def _kind(volume: Volume) -> str:
    return next((key for key in volume.to_wire() if key != "name"), "")


def _path(uid: str, volume: Volume, kind: str, settings: PodSettings) -> str:
    if volume.hostPath is not None:
        return volume.hostPath.path
    directory = KINDS.get(kind, kind)
    return f"{settings.root_dir}/pods/{uid}/volumes/{directory}/{volume.name}"
