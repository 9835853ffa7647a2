"""Quantities with the form they were written in, and what pods ask for in all; pure.

The canonical text and the sums are those of apimachinery `api/resource/quantity.go` and of kubectl
`pkg/util/resource`: a sum has the form of its first amount that is not zero.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from orch.wire import raw
from orch.wire.quantity import format_bytes, parse_quantity

Part = Literal["requests", "limits"]
Record = Mapping[str, Any]
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+")
_SUFFIXES = dict(zip(range(-9, 21, 3), ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"),
                     strict=True))  # fmt: skip
_MAX_EXPONENT = 18


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity; `form` is how it is written: `2k`, `2Ki` or `2e3`."""

    value: Decimal = Decimal(0)
    form: Literal["decimal", "binary", "exponent"] = "decimal"

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.value + other.value, self.form if self.value else other.form)

    @property
    def whole(self) -> int:
        return math.ceil(self.value)

    @property
    def milli(self) -> int:
        return math.ceil(self.value * 1000)

    def __str__(self) -> str:
        if self.form == "binary" and abs(self.value) >= 1024 and self.value == self.whole:
            return format_bytes(self.whole)
        if not self.value:
            return "0"
        exponent = int(self.value.normalize().as_tuple().exponent)
        exponent = min(exponent - exponent % 3, _MAX_EXPONENT)
        suffix = _SUFFIXES[exponent]
        if self.form == "exponent":
            suffix = f"e{exponent}" if exponent else ""
        return f"{int(self.value.scaleb(-exponent))}{suffix}"


def read(quantity: Any) -> Amount:
    """ValueError for what is no quantity."""
    text = str(quantity)
    value = parse_quantity(quantity)
    if text.endswith("i"):
        return Amount(value, "binary")
    return Amount(value, "exponent" if _EXPONENT.search(text) else "decimal")


def canonical(quantity: Any) -> str:
    """`0.5` is `500m`, `2048Ki` is `2Mi`; what is no quantity stays as it came."""
    try:
        return str(read(quantity))
    except ValueError:
        return str(quantity)


def amounts(quantities: Record) -> dict[str, Amount]:
    """Those of a list of resources; what is no quantity counts as not there."""
    found = {}
    for name, quantity in quantities.items():
        try:
            found[name] = read(quantity)
        except ValueError:
            continue  # the API server accepts none such
    return found


def of_pods(pods: Iterable[Record], part: Part) -> dict[str, Amount]:
    """What pods ask for, added up."""
    total: dict[str, Amount] = {}
    for pod in pods:
        _add(total, of_pod(pod, part))
    return total


def of_pod(pod: Record, part: Part) -> dict[str, Amount]:
    """What a pod asks for: its containers together, or its largest init container if that is more.

    Init containers that go on count beside the containers and the init containers after them.
    """
    total: dict[str, Amount] = {}
    for container in raw.records(pod, "spec", "containers"):
        _add(total, of_container(container, part))
    sidecars: dict[str, Amount] = {}
    largest: dict[str, Amount] = {}
    for container in raw.records(pod, "spec", "initContainers"):
        needed = of_container(container, part)
        if raw.text(container, "restartPolicy") == "Always":
            _add(total, needed)
            _add(sidecars, needed)
            needed = sidecars
        else:
            _add(needed, sidecars)
        _raise(largest, needed)
    _raise(total, largest)
    overhead = amounts(raw.mapping(pod, "spec", "overhead"))
    bounded = {name: a for name, a in overhead.items() if total.get(name, Amount()).value}
    _add(total, overhead if part == "requests" else bounded)
    return total


def of_container(container: Record, part: Part) -> dict[str, Amount]:
    return amounts(raw.mapping(container, "resources", part))


def _add(total: dict[str, Amount], more: Mapping[str, Amount]) -> None:
    for name, amount in more.items():
        total[name] = total[name] + amount if name in total else amount


def _raise(total: dict[str, Amount], least: Mapping[str, Amount]) -> None:
    for name, amount in least.items():
        if name not in total or amount.value > total[name].value:
            total[name] = amount
