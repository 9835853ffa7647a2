"""Where the parts of a pod are: cgroup paths, directories to walk; pure.

The rule of the cgroupfs driver: a container's cgroup is `<pod's parent>/<container id>`, and so is
the sandbox's. Another driver's names come with the target itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodeagent.stats.samples import ContainerTarget, PodTarget

# Volumes whose content is the pod's own; a hostPath is the host's.
EPHEMERAL_KINDS = frozenset({"emptyDir", "configMap", "secret", "projected", "downwardAPI"})


def cgroup_of(pod: PodTarget, container: ContainerTarget) -> str:
    """The path of a container's cgroup below the root of every hierarchy."""
    return container.cgroup or f"{pod.cgroup_parent.rstrip('/')}/{container.id}"


def sandbox_cgroup_of(pod: PodTarget) -> str:
    """The path of the sandbox's cgroup; empty when the pod has no sandbox."""
    if pod.sandbox_cgroup or not pod.sandbox_id:
        return pod.sandbox_cgroup
    return f"{pod.cgroup_parent.rstrip('/')}/{pod.sandbox_id}"


def directories_of(targets: Sequence[PodTarget]) -> Mapping[str, bool]:
    """What to walk for these pods: path → whether recursively (log directories are not)."""
    wanted: dict[str, bool] = {}
    for target in targets:
        wanted.update({container.log_dir: False for container in target.containers})
        wanted[target.log_dir] = False
        wanted.update({path: True for _, path, kind in target.volumes if kind in EPHEMERAL_KINDS})
    wanted.pop("", None)
    return wanted


def cgroups_of(targets: Sequence[PodTarget]) -> list[str]:
    """The paths of every cgroup of these pods."""
    paths = []
    for target in targets:
        paths.append(target.cgroup_parent)
        paths.extend(cgroup_of(target, container) for container in target.containers)
        sandbox = sandbox_cgroup_of(target)
        if sandbox:
            paths.append(sandbox)
    return paths
