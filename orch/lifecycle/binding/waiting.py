"""Whose turn it is among pods that wait for a node; pure.

The highest priority comes first; within one, namespaces take turns, so that a thousand pods of one
do not keep those of another waiting, and in a namespace those come first that were longest not
tried. A pod that found no node is tried again when the cluster has changed, after growing pauses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from orch.wire.records.pods import Pod

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0
ANYWAY_S = 300.0  # tried again though nothing is known to have changed

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A pod that found no node: when, how often in a row, and what the cluster was like."""

    at_s: float
    times: int
    generation: int | None  # of the pod's spec
    changes: int  # of the cluster, seen so far

    @property
    def due_s(self) -> float:
        """Not to be tried again before."""
        return self.at_s + min(FIRST_PAUSE_S * 2.0 ** min(self.times - 1, 16), LAST_PAUSE_S)


class Attempts:
    """What is remembered of pods that found no node, by uid."""

    def __init__(self) -> None:
        self._failed: dict[str, Attempt] = {}

    def failed(self, pod: Pod, changes: int, now_s: float) -> None:
        uid = pod.metadata.uid or ""
        before = self._failed.get(uid)
        times = before.times + 1 if before else 1
        self._failed[uid] = Attempt(now_s, times, pod.metadata.generation, changes)

    def keep(self, uids: Container[str]) -> None:
        """Forget all others: they have a node, or are gone."""
        self._failed = {uid: one for uid, one in self._failed.items() if uid in uids}

    def tried_s(self, pod: Pod) -> float:
        """When it was last tried; before all times if it never was."""
        attempt = self._failed.get(pod.metadata.uid or "")
        return attempt.at_s if attempt else float("-inf")

    def due_s(self, pod: Pod, changes: int) -> float:
        """From when on the pod may be tried."""
        attempt = self._failed.get(pod.metadata.uid or "")
        if attempt is None or attempt.generation != pod.metadata.generation:
            return float("-inf")
        return attempt.due_s if attempt.changes != changes else attempt.at_s + ANYWAY_S


def in_turn(pods: Iterable[Pod], attempts: Attempts) -> list[Pod]:
    """The order in which pods that are due get a try."""
    ordered = sorted(pods, key=lambda pod: _rank(pod, attempts))
    by_priority: dict[int, Rotation[str, Pod]] = {}
    for pod in ordered:
        rotation = by_priority.setdefault(pod.spec.priority or 0, Rotation())
        rotation.put(pod.metadata.namespace or "", pod)
    return [rotation.take() for rotation in by_priority.values() for _ in range(len(rotation))]


def _rank(pod: Pod, attempts: Attempts) -> tuple[int, float, str, str]:
    created = pod.metadata.creationTimestamp or ""
    return -(pod.spec.priority or 0), attempts.tried_s(pod), created, pod.metadata.name


class Rotation(Generic[K, T]):
    """Things that wait, by owner: of each owner in turn the one that waits longest."""

    def __init__(self) -> None:
        self._owners: dict[K, deque[T]] = {}  # the next one first

    def __len__(self) -> int:
        return sum(map(len, self._owners.values()))

    def __bool__(self) -> bool:
        return bool(self._owners)

    def put(self, owner: K, thing: T) -> None:
        self._owners.setdefault(owner, deque()).append(thing)

    def take(self) -> T:
        """KeyError when nothing waits."""
        owner = next(iter(self._owners), None)
        if owner is None:
            raise KeyError("nothing waits")
        things = self._owners.pop(owner)
        thing = things.popleft()
        if things:
            self._owners[owner] = things
        return thing
