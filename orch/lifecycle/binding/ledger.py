"""Which pod counts on which node, and whose turn it is among those that wait for one; pure.

Kept from look to look: a look reads only what has changed. Pods on their way to a node count there.
Of those that wait the highest priority comes first; within one, namespaces take turns, and in a
namespace those come first that are due longest. A pod that found no node is tried again after
growing pauses, or at once when its spec has changed.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from orch.lifecycle.binding import placement
from orch.lifecycle.binding.placement import Demand, Room
from orch.wire.podrules.fit import HostPort
from orch.wire.podrules.podspec import FINAL_PHASES
from orch.wire.records.core import Node
from orch.wire.records.pods import Pod

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0


class Cluster(NamedTuple):
    """Nodes and pods, by key."""

    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]


@dataclass(frozen=True, slots=True)
class Entry:
    """A pod and the node where it counts; without one, when it is due, and after which pause."""

    pod: Pod
    node: str = ""
    wanted: Demand | None = None  # of the node
    until_s: float = math.inf  # a binding may take to be seen, or be known not to have happened
    due_s: float = -math.inf
    pause_s: float = 0.0


class Ledger:
    """All pods; `waiting` are those without a node, by key. `weigh` says what a pod takes."""

    def __init__(self, weigh: Callable[[Pod], Demand] = placement.demand) -> None:
        self._weigh = weigh
        self.waiting: dict[str, Entry] = {}
        self._entries: dict[str, Entry] = {}  # by pod key
        self._in_use = defaultdict[str, Counter[str | HostPort]](Counter)  # by node
        self._closed: dict[tuple[str, str], float] = {}  # by node and namespace: until when

    def look(self, cluster: Cluster, now_s: float) -> Sequence[Room]:
        """Take in what has changed, and give the nodes with what is in use of them."""
        for key in self._entries.keys() - cluster.pods.keys():
            self._leave(key)
        for key, pod in cluster.pods.items():
            entry = self._entries.get(key)
            if entry is None or entry.pod is not pod or entry.until_s <= now_s:
                self._enter(self._entry(pod, entry, now_s))
        for name in self._in_use.keys() - cluster.nodes.keys():
            if not self._in_use[name]:
                del self._in_use[name]
        self._closed = {pair: end_s for pair, end_s in self._closed.items() if end_s > now_s}
        nodes = cluster.nodes.items()
        return [Room(node, self._in_use[name], self._closed) for name, node in nodes]

    def due(self, now_s: float) -> Sequence[Pod]:
        """The pods to be tried now, in turn."""
        due = [entry for entry in self.waiting.values() if entry.due_s <= now_s]
        turns = Counter[tuple[int, str]]()

        def turn(entry: Entry) -> tuple[int, int]:
            priority = entry.pod.spec.priority or 0
            of_namespace = priority, entry.pod.metadata.namespace or ""
            turns[of_namespace] += 1
            return -priority, turns[of_namespace]

        return [entry.pod for entry in sorted(sorted(due, key=_rank), key=turn)]

    def assume(self, pod: Pod, node: str, wanted: Demand, until_s: float) -> None:
        """The pod is on its way to the node."""
        self._enter(replace(self._entries[pod.key], node=node, wanted=wanted, until_s=until_s))

    def failed(self, pod: Pod, now_s: float) -> None:
        """It found no node, or does not get to the one that it was on its way to."""
        pause_s = max(FIRST_PAUSE_S, min(2 * self._entries[pod.key].pause_s, LAST_PAUSE_S))
        self._enter(Entry(pod, due_s=now_s + pause_s, pause_s=pause_s))

    def close(self, pod: Pod, node: str, until_s: float) -> None:
        """The node takes no more pods of the namespace; another may take this one, at once."""
        self._closed[node, pod.metadata.namespace or ""] = until_s
        self._enter(Entry(pod))

    def _entry(self, pod: Pod, before: Entry | None, now_s: float) -> Entry:
        """The pod as it is now, with what still holds of what was known before."""
        if before is None or before.pod.metadata.uid != pod.metadata.uid:
            before = Entry(pod)
        if pod.status.phase not in FINAL_PHASES:
            if pod.spec.nodeName:
                return Entry(pod, pod.spec.nodeName, self._weigh(pod))
            if now_s < before.until_s < math.inf:
                return replace(before, pod=pod)
        if before.pod.metadata.generation != pod.metadata.generation:
            return Entry(pod)
        return Entry(pod, due_s=before.due_s, pause_s=before.pause_s)

    def _enter(self, entry: Entry) -> None:
        """In the place of the pod's former entry."""
        key = entry.pod.key
        self._leave(key)
        self._entries[key] = entry
        if entry.wanted:
            self._in_use[entry.node].update(entry.wanted)
        elif placement.is_own(entry.pod):
            self.waiting[key] = entry

    def _leave(self, key: str) -> None:
        """What is no longer in use is no longer mentioned."""
        self.waiting.pop(key, None)
        entry = self._entries.pop(key, None)
        if entry and entry.wanted:
            in_use = self._in_use[entry.node]
            in_use.subtract(entry.wanted)
            for name in entry.wanted:
                if not in_use[name]:
                    del in_use[name]


def _rank(entry: Entry) -> tuple[float, str, str]:
    meta = entry.pod.metadata
    return entry.due_s, meta.creationTimestamp or "", meta.name
