"""Whether the node has room for resizes, and which goes first; pure.

As the reference agent (pkg/kubelet/allocation): what asks for no more goes first, then the highest
priority, then Guaranteed pods, then who has waited longest. What does not fit now is deferred and
judged again; what could not fit an empty node is infeasible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nodeagent.pods.resize.sizes import SizeGrant, allocated_pod
from orch.wire import quantity
from orch.wire.podrules import podspec
from orch.wire.records.pods import Pod

DEFERRED, INFEASIBLE = "Deferred", "Infeasible"
_COUNTED: Mapping[str, Callable[[Any], int]] = {
    "cpu": quantity.to_milli,
    "memory": quantity.to_bytes,
}


def shortage(resource: str, wanted: int, used: int, room: int) -> str:
    """What a node says that has not enough left."""
    return (
        f"Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, "
        f"capacity: {room}"
    )


@dataclass(frozen=True, slots=True)
class Pending:
    """Why a resize waits; `generation` is the pod's that asks for it."""

    reason: str
    message: str
    generation: int


@dataclass(frozen=True, slots=True)
class Wish:
    """A pod that desires other than it has; `since_s` is since when it has waited."""

    pod: Pod
    allocation: SizeGrant
    since_s: float


Amounts = Mapping[str, int]


def read(amount: Any) -> int:
    """In thousandths; 0 for None."""
    return quantity.to_milli(amount or 0)


def amounts(pod: Pod) -> Amounts:
    """What the pod requests: cpu in thousandths, memory in bytes."""
    return {name: podspec.requested(pod, name, read) for name, read in _COUNTED.items()}


def judge(
    wishes: Iterable[Wish], used: Amounts, allocatable: Mapping[str, Any]
) -> dict[str, Pending | None]:
    """By uid in the order of judging, why each resize waits; None: it is granted.

    `used` is what all pods are allocated now, those that wish included.
    """
    left = {
        name: read(allocatable[name]) - used[name]
        for name, read in _COUNTED.items()
        if name in allocatable
    }
    held = [(wish, amounts(wish.pod), _held(wish)) for wish in wishes]
    verdicts: dict[str, Pending | None] = {}
    for wish, wanted, has in sorted(held, key=_turn):
        problem = _problem(wanted, has, left, allocatable)
        generation = wish.pod.metadata.generation or 0
        pending = Pending(*problem, generation) if problem else None
        verdicts[wish.pod.metadata.uid or ""] = pending
        if pending is None:
            left = {name: room + has[name] - wanted[name] for name, room in left.items()}
    return verdicts


def _held(wish: Wish) -> Amounts:
    return amounts(allocated_pod(wish.pod, wish.allocation))


def _turn(judged: tuple[Wish, Amounts, Amounts]) -> tuple[bool, int, bool, float]:
    wish, wanted, has = judged
    grows = any(wanted[name] > has[name] for name in wanted)
    lesser = podspec.qos_class(wish.pod) != podspec.GUARANTEED
    return grows, -(wish.pod.spec.priority or 0), lesser, wish.since_s


def _problem(
    wanted: Amounts, has: Amounts, left: Amounts, allocatable: Mapping[str, Any]
) -> tuple[str, str] | None:
    for name, room in left.items():
        if wanted[name] <= has[name]:
            continue
        whole = _COUNTED[name](allocatable[name])
        if wanted[name] > whole:
            text = "Node didn't have enough capacity"
            return INFEASIBLE, f"{text}: {name}, requested: {wanted[name]}, capacity: {whole}"
        if wanted[name] > room + has[name]:
            used = whole - room - has[name]
            return DEFERRED, shortage(name, wanted[name], used, whole)
    return None
