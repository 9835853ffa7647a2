"""Which pod counts on which node, and whose turn it is among those that wait for one; pure.

Kept from look to look: a look reads only what has changed. Pods on their way to a node count there.
Of those that wait the highest priority comes first; within one, namespaces take turns, and in a
namespace those come first that are due longest. A pod that found no node is tried again after
growing pauses, or at once when its spec has changed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from orch.lifecycle.binding import placement
from orch.lifecycle.binding.placement import Cluster, Demand, Room, Use
from orch.wire.podrules.podspec import FINAL_PHASES
from orch.wire.records.pods import Pod

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A pod and the node where it counts; without one, how often it was tried, when it is due."""

    pod: Pod
    node: str = ""
    wanted: Demand | None = None  # of the node
    until_s: float = math.inf  # a binding may take to be seen, or be known not to have happened
    tries: int = 0
    due_s: float = -math.inf


class Ledger:
    """All pods; `waiting` are those without a node, by key."""

    def __init__(self) -> None:
        self.waiting: dict[str, Entry] = {}
        self._entries: dict[str, Entry] = {}  # by pod key
        self._uses: dict[str, Use] = {}  # by node
        self._closed: dict[tuple[str, str], float] = {}  # by node and namespace: until when

    def look(self, cluster: Cluster, now_s: float) -> Sequence[Room]:
        """Take in what has changed, and give the nodes with what is in use of them."""
        for key in self._entries.keys() - cluster.pods.keys():
            self._leave(key)
        for key, pod in cluster.pods.items():
            entry = self._entries.get(key)
            if entry is None or entry.pod is not pod or entry.until_s <= now_s:
                self._enter(_entry(pod, entry, now_s))
        self._uses = {name: use for name, use in self._uses.items() if use.amounts}
        self._closed = {pair: end_s for pair, end_s in self._closed.items() if end_s > now_s}
        closed: dict[str, set[str]] = {}
        for name, namespace in self._closed:
            closed.setdefault(name, set()).add(namespace)
        return [
            Room(node, self._use(name), closed.get(name, ()))
            for name, node in cluster.nodes.items()
        ]

    def due(self, now_s: float) -> tuple[Sequence[Pod], float]:
        """The pods to be tried now, in turn, and when the next of the others is due."""
        later = [entry.due_s for entry in self.waiting.values() if entry.due_s > now_s]
        now = in_turn(entry for entry in self.waiting.values() if entry.due_s <= now_s)
        return [entry.pod for entry in now], min(later, default=math.inf)

    def assume(self, pod: Pod, node: str, wanted: Demand, until_s: float) -> None:
        """The pod is on its way to the node."""
        self._enter(replace(self._entries[pod.key], node=node, wanted=wanted, until_s=until_s))

    def failed(self, pod: Pod, now_s: float) -> None:
        """It found no node, or does not get to the one that it was on its way to."""
        tries = self._entries[pod.key].tries
        pause_s = min(FIRST_PAUSE_S * 2.0 ** min(tries, 16), LAST_PAUSE_S)
        self._enter(Entry(pod, tries=tries + 1, due_s=now_s + pause_s))

    def close(self, pod: Pod, node: str, until_s: float) -> None:
        """The node takes no more pods of the namespace; another may take this one, at once."""
        self._closed[node, pod.metadata.namespace or ""] = until_s
        self._enter(Entry(pod))

    def _use(self, node: str) -> Use:
        return self._uses.setdefault(node, Use())

    def _enter(self, entry: Entry) -> None:
        """In the place of the pod's former entry."""
        pod, key = entry.pod, entry.pod.key
        self._leave(key)
        self._entries[key] = entry
        if entry.wanted:
            self._use(entry.node).take(entry.wanted)
        elif placement.is_own(pod):
            self.waiting[key] = entry

    def _leave(self, key: str) -> None:
        self.waiting.pop(key, None)
        entry = self._entries.pop(key, None)
        if entry and entry.wanted:
            self._use(entry.node).give_back(entry.wanted)


def _entry(pod: Pod, before: Entry | None, now_s: float) -> Entry:
    """The pod as it is now, with what still holds of what was known before."""
    if before is None or before.pod.metadata.uid != pod.metadata.uid:
        before = Entry(pod)
    is_on_its_way = now_s < before.until_s < math.inf
    node = pod.spec.nodeName or (before.node if is_on_its_way else "")
    if node and pod.status.phase not in FINAL_PHASES:
        until_s = math.inf if pod.spec.nodeName else before.until_s
        return Entry(pod, node, placement.demand(pod), until_s)
    if before.pod.metadata.generation != pod.metadata.generation:
        return Entry(pod)
    return Entry(pod, tries=before.tries, due_s=before.due_s)


def in_turn(entries: Iterable[Entry]) -> list[Entry]:
    """The order in which those that are due get a try."""
    turns = Counter[tuple[int, str]]()

    def turn(entry: Entry) -> tuple[int, int]:
        priority = entry.pod.spec.priority or 0
        of_namespace = priority, entry.pod.metadata.namespace or ""
        turns[of_namespace] += 1
        return -priority, turns[of_namespace]

    return sorted(sorted(entries, key=_rank), key=turn)


def _rank(entry: Entry) -> tuple[float, str, str]:
    meta = entry.pod.metadata
    return entry.due_s, meta.creationTimestamp or "", meta.name
