"""What the pods of each node refer to: Secrets, ConfigMaps and accounts the node may use; pure.

Told each change of a pod; a question is two look-ups. A mirror pod refers to nothing: it stands for
a file on its node, and a node could write anything into it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orch.wire import raw
from orch.wire.names import ANNOTATION_CONFIG_MIRROR, DEFAULT_SERVICE_ACCOUNT

Reference = tuple[str, str, str]  # plural, namespace, name
_CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
# Plural → the names of the fields that refer to it: of an environment variable, of all of it, of a
# volume (with the field of its name), of a projected source.
_SOURCES = {
    "secrets": ("secretKeyRef", "secretRef", ("secret", "secretName"), "secret"),
    "configmaps": ("configMapKeyRef", "configMapRef", ("configMap", "name"), "configMap"),
}


class NodeGraph:
    """`put` and `drop` as pods change; keys are storage's."""

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
    if ANNOTATION_CONFIG_MIRROR in raw.mapping(pod, "metadata", "annotations"):
        return
    namespace = raw.text(pod, "metadata", "namespace")
    spec = raw.mapping(pod, "spec")
    account = raw.text(spec, "serviceAccountName") or DEFAULT_SERVICE_ACCOUNT
    yield "serviceaccounts", namespace, account
    for one in raw.records(spec, "imagePullSecrets"):
        yield "secrets", namespace, raw.text(one, "name")
    for plural, fields in _SOURCES.items():
        for name in (*_of_containers(spec, fields), *_of_volumes(spec, fields)):
            if name:
                yield plural, namespace, name


def referring_containers(spec: Mapping[str, Any]) -> Iterator[str]:
    """The containers with variables that come from a Secret or ConfigMap."""
    for container in _containers(spec):
        if any(any(_of_container(container, fields)) for fields in _SOURCES.values()):
            yield raw.text(container, "name")


def _of_containers(spec: Mapping[str, Any], fields: tuple[Any, ...]) -> Iterable[str]:
    for container in _containers(spec):
        yield from _of_container(container, fields)


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for listed in _CONTAINER_LISTS:
        yield from raw.records(spec, listed)


def _of_container(container: Mapping[str, Any], fields: tuple[Any, ...]) -> Iterable[str]:
    key_reference, whole_reference, _, _ = fields
    for variable in raw.records(container, "env"):
        yield raw.text(variable, "valueFrom", key_reference, "name")
    for source in raw.records(container, "envFrom"):
        yield raw.text(source, whole_reference, "name")


def _of_volumes(spec: Mapping[str, Any], fields: tuple[Any, ...]) -> Iterable[str]:
    _, _, (volume_field, name_field), projected_field = fields
    for volume in raw.records(spec, "volumes"):
        yield raw.text(volume, volume_field, name_field)
        for source in raw.records(volume, "projected", "sources"):
            yield raw.text(source, projected_field, "name")
