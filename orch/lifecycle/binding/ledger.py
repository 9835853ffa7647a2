"""Which pod counts on which node, and whose turn it is among those that wait for one; pure.

Kept from look to look: a look reads only what has changed. Pods on their way to a node count there.
Of those that wait the highest priority comes first; within one, namespaces take turns, and in a
namespace those come first that are due longest. A pod that found no node is tried again after
growing pauses, or at once when its spec has changed.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
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
    """Nodes and pods, by key, which nobody changes."""

    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]


@dataclass(frozen=True, slots=True)
class Entry:
    """A pod, what it takes, and the node where it counts, at most until it is due to be tried."""

    pod: Pod
    wanted: Demand  # nothing, if that cannot be told
    node: str = ""
    due_s: float = -math.inf
    pause_s: float = 0.0  # the last, before it was due


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
            if entry is None or entry.pod is not pod or (entry.node and entry.due_s <= now_s):
                self._enter(self._entry(pod, entry, now_s))
        for name in self._in_use.keys() - cluster.nodes.keys():
            if not self._in_use[name]:
                del self._in_use[name]
        self._closed = {pair: end_s for pair, end_s in self._closed.items() if end_s > now_s}
        return [Room(node, self._in_use[key], self._closed) for key, node in cluster.nodes.items()]

    def due(self, now_s: float) -> Sequence[Entry]:
        """The pods to be tried now, in turn."""
        turns = defaultdict[tuple[int, str | None], Iterator[int]](count)

        def turn(entry: Entry) -> tuple[int, int]:
            priority = entry.pod.spec.priority or 0
            return -priority, next(turns[priority, entry.pod.metadata.namespace])

        due = [entry for entry in self.waiting.values() if entry.due_s <= now_s]
        due.sort(key=lambda entry: (entry.due_s, entry.pod.metadata.creationTimestamp or ""))
        return sorted(due, key=turn)

    def assume(self, entry: Entry, node: str, until_s: float) -> None:
        """The pod is on its way to the node: it is seen there by then, or does not get there."""
        self._enter(replace(entry, node=node, due_s=until_s))

    def failed(self, entry: Entry, now_s: float) -> None:
        """It found no node, or does not get to the one that it was on its way to."""
        pause_s = max(FIRST_PAUSE_S, min(2 * entry.pause_s, LAST_PAUSE_S))
        self._enter(replace(entry, due_s=now_s + pause_s, pause_s=pause_s))

    def close(self, entry: Entry, node: str, until_s: float) -> None:
        """The node takes no more pods of the namespace; another may take this one, at once."""
        self._closed[node, entry.pod.metadata.namespace or ""] = until_s
        self._enter(entry)

    def _entry(self, pod: Pod, before: Entry | None, now_s: float) -> Entry:
        """The pod as it is now, with what still holds of what was known before."""
        if pod.spec.nodeName and pod.status.phase not in FINAL_PHASES:
            return Entry(pod, self._weigh(pod), pod.spec.nodeName, due_s=math.inf)
        if before is None or _version(before.pod) != _version(pod):
            return Entry(pod, self._weigh(pod))
        is_on_its_way = now_s < before.due_s < math.inf
        return replace(before, pod=pod, node=before.node if is_on_its_way else "")

    def _enter(self, entry: Entry) -> None:
        """In the place of the pod's former entry."""
        key = entry.pod.key
        self._leave(key)
        self._entries[key] = entry
        if entry.node:
            self._in_use[entry.node].update(entry.wanted)
        elif entry.wanted and placement.is_own(entry.pod):
            self.waiting[key] = entry

    def _leave(self, key: str) -> None:
        self.waiting.pop(key, None)
        entry = self._entries.pop(key, None)
        if entry and entry.node:
            self._in_use[entry.node] -= entry.wanted  # what is not in use is not mentioned


def _version(pod: Pod) -> tuple[str | None, int | None]:
    return pod.metadata.uid, pod.metadata.generation
