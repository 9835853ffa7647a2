"""The priority of a pod comes from its PriorityClass, and from nowhere else; pure.

As the reference's Priority plugin. Pods of the system's classes are never evicted, so these are for
its own namespace, for the pods of a node's own files, for whoever may do anything, and for
namespaces in which an administrator made a ResourceQuota for them (what `limitedResources` of the
reference's configuration is for).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orch.server.objects.document import Document, ObjectTarget
from orch.server.strategy import quotas
from orch.server.strategy.priority_classes import PREEMPTS, SYSTEM
from orch.server.strategy.quotas import PRIORITY_CLASS
from orch.wire.names import GROUP_MASTERS, SYSTEM_NAMESPACE
from orch.wire.records.authentication import node_name_of
from orch.wire.records.kinds import PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS, Resource

_NO_CLASS: Document = {"value": 0, "preemptionPolicy": PREEMPTS}
# All objects of a kind; of one namespace, or "" for kinds without.
ListDocuments = Callable[[Resource, str], Sequence[Document]]


class Priorities:
    """The `Admission` of pods, which it completes, and of PriorityClasses."""

    def __init__(self, listed: ListDocuments) -> None:
        self._listed = listed

    def judges(self, resource: Resource) -> bool:
        return resource in (PODS, PRIORITY_CLASSES)

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 for a class that is not there or not allowed, and for another priority."""
        if target.strategy.resource is PRIORITY_CLASSES:
            problem = self._second_default(new)
        else:
            problem = self._complete(target, new) if old is None else ""
        if problem:
            raise target.forbidden(new["metadata"].get("name", ""), problem)

    def _second_default(self, new: Document) -> str:
        name = new["metadata"].get("name")
        for other in self._listed(PRIORITY_CLASSES, "") if new.get("globalDefault") else ():
            if other.get("globalDefault") and other["metadata"]["name"] != name:
                before = other["metadata"]["name"]
                return (
                    f"PriorityClass {before} is already marked as default. Only one default can"
                    " exist"
                )
        return ""

    def _complete(self, target: ObjectTarget, pod: Document) -> str:
        """Fill in what follows from the class; returns what is wrong."""
        spec = pod["spec"]
        name = spec.get("priorityClassName") or ""
        found = self._class(name)
        if found is None:
            return f"no PriorityClass with name {name} was found"
        if found is not _NO_CLASS:
            name = spec["priorityClassName"] = found["metadata"]["name"]
        value, policy = found.get("value", 0), found.get("preemptionPolicy") or PREEMPTS
        if spec.get("priority") not in (None, value):
            return (
                f"the integer value of priority ({spec['priority']}) must not be provided in pod"
                f" spec; priority admission controller computed {value} from the given"
                " PriorityClass name"
            )
        if spec.get("preemptionPolicy") not in (None, "", policy):
            return (
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be"
                f" provided in pod spec; priority admission controller computed {policy} from the"
                " given PriorityClass name"
            )
        spec["priority"], spec["preemptionPolicy"] = value, policy
        if name in SYSTEM and not self._may_be_critical(target, name):
            namespace = target.namespace
            return f"pods with {name} priorityClass is not permitted in {namespace} namespace"
        return ""

    def _class(self, name: str) -> Document | None:
        """The default class for ""; of several, the one of the lowest value."""
        classes = self._listed(PRIORITY_CLASSES, "")
        if name:
            return next((each for each in classes if each["metadata"]["name"] == name), None)
        defaults = [each for each in classes if each.get("globalDefault")]
        return min(defaults, key=lambda each: int(each.get("value", 0)), default=_NO_CLASS)

    def _may_be_critical(self, target: ObjectTarget, name: str) -> bool:
        identity = target.identity
        if GROUP_MASTERS in identity.groups or node_name_of(identity) is not None:
            return True
        if target.namespace == SYSTEM_NAMESPACE:
            return True
        return any(
            requirement["scopeName"] == PRIORITY_CLASS and quotas.selects(requirement, name)
            for quota in self._listed(RESOURCE_QUOTAS, target.namespace)
            for requirement in quotas.requirements(quota)
        )
