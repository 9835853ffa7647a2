"""The containers of a pod: the three lists, in the order in which they start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orch.wire.records.pods import Container, Pod

LASTING = ("initContainers", "containers")
LISTS = (*LASTING, "ephemeralContainers")
PULL_POLICIES = ALWAYS, IF_NOT_PRESENT, NEVER = ("Always", "IfNotPresent", "Never")


def all_containers(pod: Pod) -> list[Container]:
    return [container for _, container in places(pod)]


def places(pod: Pod) -> Iterator[tuple[str, Container]]:
    """Each container with its place: `spec.containers[0]`."""
    for name in LISTS:
        for index, container in enumerate(getattr(pod.spec, name) or ()):
            yield f"spec.{name}[{index}]", container


def document_places(
    spec: Mapping[str, Any], lists: tuple[str, ...] = LISTS
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The same of a spec that is still a document."""
    for name in lists:
        for index, container in enumerate(spec.get(name) or ()):
            yield f"spec.{name}[{index}]", container


def find_container(pod: Pod, name: str) -> Container | None:
    return next((c for c in all_containers(pod) if c.name == name), None)


def container_type(pod: Pod | None, name: str) -> str:
    """`container`, `init_container` or `ephemeral_container`, as metrics name them."""
    if any(c.name == name for c in (pod and pod.spec.initContainers) or ()):
        return "init_container"
    if any(c.name == name for c in (pod and pod.spec.ephemeralContainers) or ()):
        return "ephemeral_container"
    return "container"


def is_sidecar(container: Container) -> bool:
    """An init container that keeps running beside the others."""
    return container.restartPolicy == "Always"


def pull_policy(image: str, given: str | None = None) -> str:
    """The policy given, else Always for a moving tag: latest, or none and no digest."""
    _, _, tag = image.rpartition("/")[2].partition(":")
    moves = "@" not in image and tag in ("", "latest")
    return given or (ALWAYS if moves else IF_NOT_PRESENT)
