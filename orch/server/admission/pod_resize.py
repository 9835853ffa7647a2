"""A resize of a bound pod must fit its node at all; pure.

As the reference's PodResize plugin: what no other pod's end could make room for is refused here,
so that an agent never has to call it infeasible. Whether there is room now is for the agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from orch.server.objects.document import Document, ObjectTarget
from orch.server.strategy.pods import RESIZE, node_of
from orch.wire import names, quantity, raw
from orch.wire.errors import Cause
from orch.wire.podrules import podspec
from orch.wire.records.kinds import PODS, Resource
from orch.wire.records.pods import Pod

_LINUX = "linux"
_UNITS: Mapping[str, Callable[[Any], int]] = {
    "cpu": quantity.to_milli,
    "memory": quantity.to_bytes,
}

# The Node of a name, not to be changed; None: there is none.
Find = Callable[[str], Document | None]


class PodResize:
    """The `Admission` of resizes."""

    def __init__(self, find: Find) -> None:
        self._find = find

    def judges(self, resource: Resource) -> bool:
        return resource is PODS

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 for more than the pod's node could ever give."""
        if target.subresource != RESIZE or old is None or not (name := node_of(new)):
            return
        if new["metadata"].get("generation") == old["metadata"].get("generation"):
            return
        node = self._find(name)
        if node is None:
            raise target.forbidden(target.name, f'node "{name}" not found')
        system = raw.text(node, "metadata", "labels", names.LABEL_OS) or _LINUX
        if system != _LINUX:
            text = f'pod resize is only supported on linux nodes, node "{name}" is "{system}"'
            raise target.forbidden(target.name, text, (Cause("UnsupportedPlatform", text),))
        if found := [*_excesses(Pod.from_wire(new), raw.mapping(node, "status", "allocatable"))]:
            text = f"node didn't have enough allocatable resources: {'; '.join(found)}"
            raise target.forbidden(target.name, text, (Cause("NodeCapacity", text),))


def _excesses(pod: Pod, allocatable: Mapping[str, Any]) -> Iterator[str]:
    for name, read in _UNITS.items():
        wanted, room = podspec.requested(pod, name, read), read(allocatable.get(name, 0))
        if wanted > room:
            yield f"{name}, requested: {wanted}, allocatable: {room}"
