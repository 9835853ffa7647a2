"""Quantities in canonical form, and the sums that pods request of a node; pure.

The sums are those of kubectl `pkg/util/resource`. Amounts of bytes are written with binary suffixes
where they are exact, all others in thousandths at most: `2k`, `250m`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from orch.wire import raw
from orch.wire.podrules import podspec
from orch.wire.quantity import format_bytes, format_milli, to_milli

Part = Literal["requests", "limits"]
Record = Mapping[str, Any]
Amounts = Counter[str]  # thousandths by resource
PARTS: tuple[Part, ...] = ("requests", "limits")
_OF_BYTES = ("memory", "ephemeral-storage", "hugepages-")


def canonical(quantity: Any) -> str:
    """`0.5` is `500m`, `2048Ki` is `2Mi`; what is not a quantity stays as it came."""
    try:
        milli = to_milli(quantity)
    except ValueError:
        return str(quantity)
    return text("memory", milli) if str(quantity).endswith("i") else format_milli(milli)


def text(name: str, milli: int) -> str:
    """An amount of a resource."""
    if name.startswith(_OF_BYTES) and milli % 1000 == 0:
        return format_bytes(milli // 1000)
    return format_milli(milli)


def read(quantities: Record) -> Amounts:
    """The amounts of a resource list; what is not a quantity counts as missing."""
    found: Amounts = Counter()
    for name, quantity in quantities.items():
        try:
            found[name] = to_milli(quantity)
        except ValueError:
            continue  # the API server accepts none of these
    return found


def of_pods(pods: Iterable[Record], part: Part) -> Amounts:
    """The sum over pods."""
    return sum((of_pod(pod, part) for pod in pods), Counter())


def of_pod(pod: Record, part: Part) -> Amounts:
    """What a pod may use at once, by the rule of `podspec`, with its overhead."""
    containers = [_amounts(c, part) for c in raw.records(pod, "spec", "containers")]
    init = [
        (_amounts(c, part), raw.text(c, "restartPolicy") == "Always")
        for c in raw.records(pod, "spec", "initContainers")
    ]
    total: Amounts = Counter()
    for name in set().union(*containers, *(amounts for amounts, _ in init)):
        initial = ((amounts[name], is_sidecar) for amounts, is_sidecar in init)
        total[name] = podspec.most_at_once(initial, (amounts[name] for amounts in containers))
    overhead = read(raw.mapping(pod, "spec", "overhead"))
    limited = {name: milli for name, milli in overhead.items() if total[name]}
    total.update(overhead if part == "requests" else limited)
    return total


def _amounts(container: Record, part: Part) -> Amounts:
    return read(raw.mapping(container, "resources", part))
