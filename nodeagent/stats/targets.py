"""Which directories of a pod are walked, and how; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodeagent.stats.samples import PodTarget, VolumeTarget

# Volumes whose content is the pod's own; a hostPath is the host's.
_OWN_KINDS = frozenset({"emptyDir", "configMap", "secret", "projected", "downwardAPI"})


def is_own(volume: VolumeTarget) -> bool:
    """Whether what is in the volume is the pod's, on disk or in memory."""
    return volume.kind in _OWN_KINDS


def is_own_on_disk(volume: VolumeTarget) -> bool:
    """Whether it counts as ephemeral storage, which memory does not."""
    return is_own(volume) and not volume.in_memory


def directories_of(targets: Sequence[PodTarget]) -> Mapping[str, bool]:
    """What to walk for these pods: path → whether recursively (log directories are not)."""
    wanted: dict[str, bool] = {}
    for target in targets:
        wanted.update({container.log_dir: False for container in target.containers})
        wanted[target.log_dir] = False
        wanted.update({volume.path: True for volume in target.volumes if is_own(volume)})
    wanted.pop("", None)
    return wanted
