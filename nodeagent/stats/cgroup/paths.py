"""Where the cgroups of a pod lie, whichever driver the runtime uses.

cgroupfs: `<parent>/<container id>`. systemd: the parent is a slice, whose name spells its path
(`a-b.slice` lies in `a.slice`), and a container is a scope named after runtime and id
(`cri-containerd-<id>.scope`). A path that a target gives itself is taken as it is. What is found
once is remembered for as long as the container is measured.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache

from nodeagent.stats.cgroup.layout import Layout
from nodeagent.stats.samples import ContainerTarget, PodTarget

_SLICE = ".slice"


class CgroupPaths:
    """Paths from the root of every hierarchy. Looks into directories; for the worker thread."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._found: dict[str, str] = {}

    def pod(self, pod: PodTarget) -> str:
        """The pod's own cgroup."""
        return expand_slice(pod.cgroup_parent).rstrip("/")

    def container(self, pod: PodTarget, container: ContainerTarget) -> str:
        return container.cgroup or self._find(self.pod(pod), container.id)

    def sandbox(self, pod: PodTarget) -> str:
        """Empty when the pod has no sandbox."""
        if pod.sandbox_cgroup or not pod.sandbox_id:
            return pod.sandbox_cgroup
        return self._find(self.pod(pod), pod.sandbox_id)

    def all(self, pods: Iterable[PodTarget]) -> list[str]:
        """The paths of every cgroup of these pods; forgets those of all others."""
        paths = []
        known: dict[str, str] = {}
        for pod in pods:
            paths.append(self.pod(pod))
            ids = [container.id for container in pod.containers]
            paths.extend(self.container(pod, container) for container in pod.containers)
            if sandbox := self.sandbox(pod):
                paths.append(sandbox)
            known.update(_only(self._found, [*ids, pod.sandbox_id or ""]))
        self._found = known
        return paths

    def _find(self, parent: str, container_id: str) -> str:
        found = self._found.get(container_id)
        if found is not None:
            return found
        expected = f"{parent}/{container_id}"
        directory = self._layout.directory(parent)
        if directory is None:
            return expected
        if not os.path.isdir(f"{directory}/{container_id}"):
            scope = _scope_in(directory, container_id)
            if scope is None:
                return expected  # not there yet: look again next time
            expected = f"{parent}/{scope}"
        self._found[container_id] = expected
        return expected


@lru_cache(maxsize=1024)  # six times per pod and pass
def expand_slice(path: str) -> str:
    """`a-b.slice` → `/a.slice/a-b.slice`; any other path stays as it is."""
    head, _, name = path.rpartition("/")
    if head or not name.endswith(_SLICE) or name.startswith("-"):
        return path
    words = name.removesuffix(_SLICE).split("-")
    return "".join(f"/{'-'.join(words[:count])}{_SLICE}" for count in range(1, len(words) + 1))


def _scope_in(directory: str, container_id: str) -> str | None:
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    ending = f"{container_id}.scope"
    return next((name for name in sorted(names) if name.endswith(ending)), None)


def _only(found: dict[str, str], ids: Sequence[str]) -> dict[str, str]:
    return {one: found[one] for one in ids if one in found}
