"""A new pod with a RuntimeClass gets the overhead of the class, and runs where the class can; pure.

As the reference's RuntimeClass plugin. Mirror pods are what they are: the agent runs their static
pods whatever is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orch.server.objects.document import Document, ObjectTarget
from orch.wire import quantity, raw
from orch.wire.podrules.podspec import NO_EXECUTE, mirror_hash
from orch.wire.records.kinds import PODS, RUNTIME_CLASSES, Resource

# All objects of a kind, of one namespace or "" for kinds without; not to be changed.
ListDocuments = Callable[[Resource, str], Sequence[Document]]


class RuntimeClasses:
    """The `Admission` of pods, which it completes."""

    def __init__(self, listed: ListDocuments) -> None:
        self._listed = listed

    def judges(self, resource: Resource) -> bool:
        return resource is PODS

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 for a class that is not there, and for what contradicts it."""
        if old is not None or mirror_hash(new) is not None:
            return
        if problem := self._complete(new["spec"]):
            raise target.forbidden(new["metadata"].get("name", ""), problem)

    def _find(self, name: str) -> Document | None:
        classes = self._listed(RUNTIME_CLASSES, "")
        return next((each for each in classes if each["metadata"]["name"] == name), None)

    def _complete(self, spec: Document) -> str:
        """Fill in what follows from the class; returns what is wrong."""
        name = raw.text(spec, "runtimeClassName")
        found: Document | None = self._find(name) if name else {}
        if found is None:
            return f'pod rejected: RuntimeClass "{name}" not found'
        return _add_overhead(spec, found) or _add_scheduling(spec, found)


def _add_overhead(spec: Document, found: Document) -> str:
    given, fixed = spec.get("overhead"), raw.mapping(found, "overhead").get("podFixed")
    if fixed is None:
        if given is None:
            return ""
        return "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    if given is not None and _amounts(given) != _amounts(fixed):
        return "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    spec["overhead"] = dict(fixed)
    return ""


def _amounts(amounts: Document) -> dict[str, object]:
    return {name: quantity.parse_quantity(amount) for name, amount in amounts.items()}


def _add_scheduling(spec: Document, found: Document) -> str:
    own = dict(spec.get("nodeSelector") or {})
    for key, value in raw.mapping(found, "scheduling", "nodeSelector").items():
        if own.setdefault(key, value) != value:
            return (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value};"
                f" pod.spec.nodeSelector[{key}] = {own[key]}"
            )
    if own:
        spec["nodeSelector"] = own
    if more := raw.records(raw.mapping(found, "scheduling"), "tolerations"):
        spec["tolerations"] = _merged(spec.get("tolerations") or [], more)
    return ""


def _merged(
    own: Sequence[Mapping[str, Any]], more: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Without those that one of the other side covers; of equal ones, the pod's."""
    kept = [
        each for each in own if not any(_covers(other, each) and other != each for other in more)
    ]
    return [*kept, *(each for each in more if not any(_covers(other, each) for other in kept))]


def _covers(wide: Mapping[str, Any], narrow: Mapping[str, Any]) -> bool:
    """Whether whatever `narrow` tolerates is tolerated by `wide`, for as long."""
    for name in ("key", "effect"):
        if wide.get(name) and wide.get(name) != narrow.get(name):
            return False
    longest_s, wanted_s = wide.get("tolerationSeconds"), narrow.get("tolerationSeconds")
    bounded = wide.get("effect") == NO_EXECUTE and longest_s is not None
    if bounded and (wanted_s is None or wanted_s > longest_s):
        return False
    if wide.get("operator") == "Exists":
        return True
    both_equal = (narrow.get("operator") or "Equal") == (wide.get("operator") or "Equal") == "Equal"
    return both_equal and (wide.get("value") or "") == (narrow.get("value") or "")
