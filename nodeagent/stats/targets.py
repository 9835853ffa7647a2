"""Which directories of a pod are walked, and how; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodeagent.stats.samples import PodTarget

# Volumes whose content is the pod's own; a hostPath is the host's.
EPHEMERAL_KINDS = frozenset({"emptyDir", "configMap", "secret", "projected", "downwardAPI"})


def directories_of(targets: Sequence[PodTarget]) -> Mapping[str, bool]:
    """What to walk for these pods: path → whether recursively (log directories are not)."""
    wanted: dict[str, bool] = {}
    for target in targets:
        wanted.update({container.log_dir: False for container in target.containers})
        wanted[target.log_dir] = False
        wanted.update({path: True for _, path, kind in target.volumes if kind in EPHEMERAL_KINDS})
    wanted.pop("", None)
    return wanted
