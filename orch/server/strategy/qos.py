"""The quality-of-service class of a pod, from what its containers request and limit; pure."""

from __future__ import annotations

from orch.server.strategy.base import Document
from orch.wire import quantity

_COMPUTE = ("cpu", "memory")


def qos_class(spec: Document) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`; quantities must have been validated."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    wanted = [_compute(container) for container in containers]
    if not any(requests or limits for requests, limits in wanted):
        return "BestEffort"
    guaranteed = all(
        set(limits) == set(_COMPUTE)
        and all(requests.get(n, limits[n]) == limits[n] for n in limits)
        for requests, limits in wanted
    )
    return "Guaranteed" if guaranteed else "Burstable"


def _compute(container: Document) -> tuple[Document, Document]:
    """CPU and memory requests and limits above zero."""
    resources = container.get("resources") or {}
    requests, limits = (
        {
            name: amount
            for name in _COMPUTE
            if (amount := quantity.parse_quantity((resources.get(part) or {}).get(name, 0))) > 0
        }
        for part in ("requests", "limits")
    )
    return requests, limits
