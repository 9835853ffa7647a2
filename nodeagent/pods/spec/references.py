"""The ConfigMaps and Secrets that a pod refers to, and what is known of them; pure.

They come from the API: fetching them is the business of `objects`. A static pod may not refer to
them (reference agent, `podutil.HasAPIObjectReference`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from orch.wire.records.pods import Container, Pod, ProjectedSource

CONFIG_MAP, SECRET = "ConfigMap", "Secret"


class Reference(NamedTuple):
    """An object of the pod's own namespace."""

    kind: str  # CONFIG_MAP or SECRET
    name: str

    def __str__(self) -> str:
        return f'{self.kind.lower()} "{self.name}"'


@dataclass(frozen=True, slots=True)
class ObjectData:
    """`absent`: there is no such object. `problem`: why it is not known whether there is."""

    data: Mapping[str, bytes] = field(default_factory=dict)
    absent: bool = False
    problem: str = ""


Objects = Mapping[Reference, ObjectData]
NO_OBJECTS: Objects = MappingProxyType({})


class NotThere(Exception):
    """An object or a key that must be there is not; the text names it."""


def references(pod: Pod) -> set[Reference]:
    """Everything the pod refers to, whether it must be there or not."""
    spec = pod.spec
    containers = [*(spec.initContainers or ()), *spec.containers, *(spec.ephemeralContainers or ())]
    found = {reference for container in containers for reference in _of_container(container)}
    found.update(_of_volumes(pod))
    return {reference for reference in found if reference.name}


def shown_in_volumes(pod: Pod) -> set[Reference]:
    """What the pod's files are made of, and follow while it runs."""
    return {reference for reference in _of_volumes(pod) if reference.name}


def look_up(
    objects: Objects, reference: Reference, *, optional: bool
) -> Mapping[str, bytes] | None:
    """The object's values; None when it is not there and need not be. NotThere."""
    found = objects.get(reference, ObjectData(problem=f"{reference} was not read"))
    if found.problem:
        raise NotThere(found.problem)
    if not found.absent:
        return found.data
    if optional:
        return None
    raise NotThere(f"{reference} not found")


def _of_container(container: Container) -> Iterator[Reference]:
    for variable in container.env or ():
        source = variable.valueFrom
        if source and source.configMapKeyRef:
            yield Reference(CONFIG_MAP, source.configMapKeyRef.name)
        if source and source.secretKeyRef:
            yield Reference(SECRET, source.secretKeyRef.name)
    for whole in container.envFrom or ():
        if whole.configMapRef:
            yield Reference(CONFIG_MAP, whole.configMapRef.name)
        if whole.secretRef:
            yield Reference(SECRET, whole.secretRef.name)


def _of_volumes(pod: Pod) -> Iterator[Reference]:
    for volume in pod.spec.volumes or ():
        if volume.configMap:
            yield Reference(CONFIG_MAP, volume.configMap.name)
        if volume.secret:
            yield Reference(SECRET, volume.secret.secretName)
        for source in (volume.projected and volume.projected.sources) or ():
            yield from _of_projection(source)


def _of_projection(source: ProjectedSource) -> Iterator[Reference]:
    if source.configMap:
        yield Reference(CONFIG_MAP, source.configMap.name)
    if source.secret:
        yield Reference(SECRET, source.secret.name)
