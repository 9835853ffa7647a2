"""The Secrets, ConfigMaps and accounts that the pods of each node refer to; pure.

Updated on every pod change. A reference is kept as a number of eight bytes, since a tenant may
write millions of them: as texts they took fifteen times what the pods take in storage. A query
looks through the node's pods of one namespace that have not ended: a node runs few, and refuses the
others. Mirror pods refer to nothing: they mirror files on their node, and a node could write
anything into them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

from orch.wire import raw
from orch.wire.names import DEFAULT_SERVICE_ACCOUNT
from orch.wire.podrules.podspec import FINAL_PHASES, mirror_hash
from orch.wire.podrules.references import CONFIG_MAP, SECRET, api_references
from orch.wire.records.kinds import CONFIG_MAPS, SECRETS

Reference = tuple[str, str, str]  # plural, namespace, name
Place = tuple[str, str]  # node and namespace of a pod
_PLURALS = {SECRET: SECRETS.plural, CONFIG_MAP: CONFIG_MAPS.plural}


class NodeGraph:
    """Call `put` and `drop` as pods change; keys are those of storage."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._marks: dict[Place, dict[str, array[int]]] = {}  # by place and key, sorted

    def put(self, key: str, pod: Mapping[str, Any]) -> None:
        place = raw.text(pod, "spec", "nodeName"), raw.text(pod, "metadata", "namespace")
        needs = place[0] and raw.text(pod, "status", "phase") not in FINAL_PHASES
        if self._places.get(key) != place or not needs:
            self.drop(key)
        if needs:
            marks = {_mark(plural, name) for plural, _, name in references_of(pod)}
            self._places[key] = place
            self._marks.setdefault(place, {})[key] = array("q", sorted(marks))

    def drop(self, key: str) -> None:
        place = self._places.pop(key, None)
        if place is None:
            return
        del self._marks[place][key]
        if not self._marks[place]:
            del self._marks[place]

    def reaches(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Does a pod bound to the node, which may still run, refer to that object?"""
        mark = _mark(plural, name)
        pods = self._marks.get((node, namespace), {})
        return any(_has(marks, mark) for marks in pods.values())


def _mark(plural: str, name: str) -> int:
    """Keyed with the random seed of this process. Finding another name of the same mark would gain
    nothing: whoever writes a pod may refer to that object by its own name.
    """
    return hash((plural, name))


def _has(marks: array[int], mark: int) -> bool:
    at = bisect_left(marks, mark)
    return at < len(marks) and marks[at] == mark


def references_of(pod: Mapping[str, Any]) -> Iterator[Reference]:
    """Every Secret, ConfigMap and service account a pod needs, in its own namespace."""
    if mirror_hash(pod) is not None:
        return
    namespace = raw.text(pod, "metadata", "namespace")
    spec = raw.mapping(pod, "spec")
    account = raw.text(spec, "serviceAccountName") or DEFAULT_SERVICE_ACCOUNT
    yield "serviceaccounts", namespace, account
    for found in api_references(spec):
        if found.name and found.kind in _PLURALS:
            yield _PLURALS[found.kind], namespace, found.name
