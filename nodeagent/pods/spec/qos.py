"""The cgroup of a pod by its class of service, and what the OOM killer is told; pure.

The rules are those of the reference agent (kubelet/qos/policy.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.podrules.podspec import BEST_EFFORT, BURSTABLE, GUARANTEED
from orch.wire.records.pods import Container, Pod

# Below the cgroup of all pods; Guaranteed pods lie in it themselves, as in the reference agent.
CGROUPS: Mapping[str, str] = {GUARANTEED: "", BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}

_GUARANTEED_ADJUSTMENT = -997
_BEST_EFFORT_ADJUSTMENT = 1000


def cgroup_path(parent: str, pod: Pod) -> str:
    """The cgroup of a pod: `<parent>/burstable/pod<uid>`."""
    below = CGROUPS[podspec.qos_class(pod)]
    return str(PurePosixPath(parent, below, f"pod{pod.metadata.uid or ''}"))


def oom_score_adjustment(pod: Pod, container: Container, memory_capacity_bytes: int) -> int:
    """-997 to 1000; of Burstable ones, who asks for more of the node's memory is killed later."""
    match podspec.qos_class(pod):
        case podspec.GUARANTEED:
            return _GUARANTEED_ADJUSTMENT
        case podspec.BEST_EFFORT:
            return _BEST_EFFORT_ADJUSTMENT
    wanted_bytes = quantity.to_bytes(podspec.requests(container).get("memory", 0))
    share = 1000 * wanted_bytes // memory_capacity_bytes if memory_capacity_bytes else 0
    return min(max(1000 - share, 1000 + _GUARANTEED_ADJUSTMENT), 999)
