"""Quality-of-service classes of pods, and what the OOM killer is told of each container; pure.

The rules are those of the reference agent (v1/helper/qos, kubelet/qos/policy.go): Guaranteed when
every container limits cpu and memory and asks for exactly that, BestEffort when none asks for
anything, Burstable between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from orch.wire import quantity
from orch.wire.records.pods import Container, Pod

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"

# Below the cgroup of all pods; Guaranteed pods lie in it themselves, as in the reference agent.
CGROUPS: Mapping[str, str] = {GUARANTEED: "", BURSTABLE: "burstable", BEST_EFFORT: "besteffort"}

_COUNTED = ("cpu", "memory")
_GUARANTEED_ADJUSTMENT = -997
_BEST_EFFORT_ADJUSTMENT = 1000


def qos_class(pod: Pod) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`, over containers and init containers."""
    containers = [*pod.spec.containers, *(pod.spec.initContainers or ())]
    asked = [(_counted(requests(c)), _counted(limits(c))) for c in containers]
    if not any(wanted or limited for wanted, limited in asked):
        return BEST_EFFORT
    if all(len(limited) == len(_COUNTED) and wanted == limited for wanted, limited in asked):
        return GUARANTEED
    return BURSTABLE


def cgroup_path(parent: str, qos_class: str, uid: str) -> str:
    """The cgroup of a pod: `<parent>/burstable/pod<uid>`."""
    return str(PurePosixPath(parent, CGROUPS[qos_class], f"pod{uid}"))


def oom_score_adjustment(pod: Pod, container: Container, memory_capacity_bytes: int) -> int:
    """-997 to 1000; of Burstable ones, who asks for more of the node's memory is killed later."""
    match qos_class(pod):
        case "Guaranteed":
            return _GUARANTEED_ADJUSTMENT
        case "BestEffort":
            return _BEST_EFFORT_ADJUSTMENT
    wanted_bytes = quantity.to_bytes(requests(container).get("memory", 0))
    share = 1000 * wanted_bytes // memory_capacity_bytes if memory_capacity_bytes else 0
    return min(max(1000 - share, 1000 + _GUARANTEED_ADJUSTMENT), 999)


def limits(container: Container) -> Mapping[str, Any]:
    return (container.resources and container.resources.limits) or {}


def requests(container: Container) -> Mapping[str, Any]:
    """What is asked for; a limit without a request asks for the limit."""
    asked = (container.resources and container.resources.requests) or {}
    return {**limits(container), **asked}


def _counted(amounts: Mapping[str, Any]) -> dict[str, int]:
    """The cpu and memory amounts above zero, in thousandths."""
    counted = {k: quantity.to_milli(amounts[k]) for k in _COUNTED if k in amounts}
    return {name: milli for name, milli in counted.items() if milli}
