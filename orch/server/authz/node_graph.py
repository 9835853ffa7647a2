"""The Secrets, ConfigMaps and accounts that the pods of each node refer to; pure.

Updated on every pod change; a query takes two look-ups. Mirror pods refer to nothing: they mirror
files on their node, and a node could write anything into them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from orch.wire import raw
from orch.wire.names import DEFAULT_SERVICE_ACCOUNT
from orch.wire.podrules.podspec import mirror_hash
from orch.wire.podrules.references import CONFIG_MAP, SECRET, api_references
from orch.wire.records.kinds import CONFIG_MAPS, SECRETS

Reference = tuple[str, str, str]  # plural, namespace, name
_PLURALS = {SECRET: SECRETS.plural, CONFIG_MAP: CONFIG_MAPS.plural}


class NodeGraph:
    """Call `put` and `drop` as pods change; keys are those of storage."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, frozenset[Reference]]] = {}
        self._nodes: dict[str, Counter[Reference]] = {}

    def put(self, key: str, pod: Mapping[str, Any]) -> None:
        node = raw.text(pod, "spec", "nodeName")
        references = frozenset(references_of(pod)) if node else frozenset()
        if self._pods.get(key) == (node, references):
            return
        self.drop(key)
        if node:
            self._pods[key] = (node, references)
            self._nodes.setdefault(node, Counter()).update(references)

    def drop(self, key: str) -> None:
        node, references = self._pods.pop(key, ("", frozenset()))
        counts = self._nodes.get(node)
        if counts is None:
            return
        counts.subtract(references)
        for reference in references:
            if counts[reference] <= 0:
                del counts[reference]
        if not counts:
            del self._nodes[node]

    def reaches(self, node: str, plural: str, namespace: str, name: str) -> bool:
        """Does a pod bound to the node refer to that object?"""
        counts = self._nodes.get(node)
        return counts is not None and (plural, namespace, name) in counts


def references_of(pod: Mapping[str, Any]) -> Iterator[Reference]:
    """Every Secret, ConfigMap and service account a pod needs, in its own namespace."""
    if mirror_hash(pod) is not None:
        return
    namespace = raw.text(pod, "metadata", "namespace")
    spec = raw.mapping(pod, "spec")
    account = raw.text(spec, "serviceAccountName") or DEFAULT_SERVICE_ACCOUNT
    yield "serviceaccounts", namespace, account
    for secret in raw.records(spec, "imagePullSecrets"):
        yield "secrets", namespace, raw.text(secret, "name")
    for found in api_references(spec):
        if found.name and found.kind in _PLURALS:
            yield _PLURALS[found.kind], namespace, found.name
