"""What a pod asks of its node: requests, limits, and the class of service that follows from them.

The rules are those of the reference (v1/helper/qos, component-helpers/resource): Guaranteed when
every container limits cpu and memory and asks for exactly that, BestEffort when none asks for
anything, Burstable between them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from orch.wire import quantity
from orch.wire.podrules.containers import is_sidecar
from orch.wire.records.pods import Container, Pod

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"

_COUNTED = ("cpu", "memory")


def limits(container: Container) -> Mapping[str, Any]:
    return (container.resources and container.resources.limits) or {}


def requests(container: Container) -> Mapping[str, Any]:
    """What is asked for; a limit without a request asks for the limit."""
    asked = (container.resources and container.resources.requests) or {}
    return {**limits(container), **asked}


def requested(pod: Pod, resource: str, read: Callable[[Any], int] = quantity.to_milli) -> int:
    """What must be free for the pod, in thousandths unless `read` counts otherwise.

    What runs side by side, or an init container with the sidecars before it where that is more.
    """

    def asked(container: Container) -> int:
        return read(requests(container).get(resource, 0))

    largest = sidecars = 0
    for container in pod.spec.initContainers or ():
        if is_sidecar(container):
            sidecars += asked(container)
        else:
            largest = max(largest, sidecars + asked(container))
    return max(largest, sidecars + sum(map(asked, pod.spec.containers)))


def qos_class(pod: Pod) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`, over containers and init containers.

    ValueError for an amount that is none.
    """
    containers = [*pod.spec.containers, *(pod.spec.initContainers or ())]
    asked = [(_counted(requests(c)), _counted(limits(c))) for c in containers]
    if not any(wanted or limited for wanted, limited in asked):
        return BEST_EFFORT
    if all(len(limited) == len(_COUNTED) and wanted == limited for wanted, limited in asked):
        return GUARANTEED
    return BURSTABLE


def _counted(amounts: Mapping[str, Any]) -> dict[str, Decimal]:
    """The cpu and memory amounts above zero."""
    counted = {k: quantity.parse_quantity(amounts[k]) for k in _COUNTED if k in amounts}
    return {name: amount for name, amount in counted.items() if amount > 0}
