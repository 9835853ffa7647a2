"""New pods get the sizes that the LimitRanges of their namespace give, and keep to them; pure.

As the reference's LimitRanger plugin; resizes are judged too. Mirror pods are what they are: the
agent runs their static pods whatever is refused here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import islice

from orch.server.asking import Unanswered
from orch.server.objects.document import Document, ObjectTarget
from orch.server.strategy import pods, quotas
from orch.wire import errors
from orch.wire.podrules import limit_ranges, podspec
from orch.wire.podrules.podspec import LASTING, document_places, mirror_hash
from orch.wire.records.kinds import LIMIT_RANGES, PODS, Resource
from orch.wire.records.pods import Pod

# All objects of a kind, of one namespace or "" for kinds without; not to be changed.
ListDocuments = Callable[[Resource, str], Sequence[Document]]
# Where and how to compute what takes long.
Aside = Callable[[Callable[[], list[str]]], Awaitable[list[str]]]
_SHOWN = 100
_AMOUNTS = 500  # more take milliseconds: 32,000 took 250
# The pod of this request that was judged aside, and what was found.
_FOUND: ContextVar[tuple[Document, list[str]]] = ContextVar("found", default=({}, []))


class LimitRanger:
    """The `Admission` of pods, which it completes, and of LimitRanges: not too many of them."""

    def __init__(self, listed: ListDocuments, aside: Aside) -> None:
        self._listed = listed
        self._aside = aside

    def judges(self, resource: Resource) -> bool:
        return resource in (PODS, LIMIT_RANGES)

    def check(self, target: ObjectTarget, new: Document, old: Document | None) -> None:
        """ApiError 403 for sizes that a LimitRange does not allow, 422 for a pod that cannot have
        those that it gives.
        """
        if old is not None and target.subresource != pods.RESIZE:
            return
        ranges = self._listed(LIMIT_RANGES, target.namespace)
        name = new["metadata"].get("name", "")
        if target.strategy.resource is LIMIT_RANGES:
            if len(ranges) >= limit_ranges.MAX_RANGES:
                why = f"a namespace has at most {limit_ranges.MAX_RANGES}: put limits into those"
                raise target.forbidden(name, why)
            return
        if not ranges or mirror_hash(new) is not None:
            return
        judge = partial(_judged, new, ranges, is_new=old is None)
        if found := self._found(new, judge) if _is_costly(new, ranges) else judge():
            raise target.forbidden(name, found[0] if len(found) == 1 else f"[{', '.join(found)}]")

    def _found(self, pod: Document, judge: Callable[[], list[str]]) -> list[str]:
        """What was found aside, or will be."""

        async def judge_aside() -> None:
            _FOUND.set((pod, await self._aside(judge)))

        about, found = _FOUND.get()
        if about is not pod:
            raise Unanswered(judge_aside)
        return found


def _is_costly(pod: Document, ranges: Sequence[Document]) -> bool:
    """By the amounts that containers are given, or that are compared."""
    items = (item for each in ranges for item in (each.get("spec") or {}).get("limits") or ())
    amounts = sum(len(part) for item in items for part in item.values() if isinstance(part, dict))
    return amounts * sum(1 for _ in document_places(pod["spec"], LASTING)) > _AMOUNTS


def _judged(pod: Document, ranges: Sequence[Document], *, is_new: bool) -> list[str]:
    """What is wrong with a pod, which is completed if it is new."""
    if is_new:
        _complete(pod, ranges)
    return [*islice(_problems(pod, ranges), _SHOWN)]


def _complete(pod: Document, ranges: Sequence[Document]) -> None:
    given = limit_ranges.give_defaults(pod["spec"], ranges)
    if not given:
        return
    metadata = pod["metadata"]
    told = {limit_ranges.ANNOTATION: given[: limit_ranges.ANNOTATION_MAX]}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **told}
    if causes := tuple(islice(pods.STRATEGY.validate(pod, None), _SHOWN)):
        raise errors.invalid(PODS.kind, metadata.get("name", ""), causes)
    pod["status"]["qosClass"] = podspec.qos_class(Pod.from_wire(pod))


def _problems(pod: Document, ranges: Sequence[Document]) -> Iterator[str]:
    spec = pod["spec"]
    containers = limit_ranges.items_of(ranges, limit_ranges.CONTAINER)
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        sizes = (resources.get("requests") or {}, resources.get("limits") or {})
        yield from limit_ranges.problems(containers, limit_ranges.CONTAINER, *sizes)
    if whole := limit_ranges.items_of(ranges, limit_ranges.POD):
        sizes = (_of_pod(pod, "requests", whole), _of_pod(pod, "limits", whole))
        yield from limit_ranges.problems(whole, limit_ranges.POD, *sizes)


def _of_pod(pod: Document, part: str, items: Sequence[Document]) -> dict[str, str]:
    """What a pod takes of the resources that the items name, without those of which it has none."""
    fields = [item.get(field) or {} for item in items for field in limit_ranges.OF_PODS]
    named = {name for amounts in fields for name in amounts}
    known = {f"{part}.{name}": name for name in named if quotas.is_of_pods(f"{part}.{name}")}
    amounts = quotas.of_pod(known, pod)
    return {known[name]: quotas.written(name, amount) for name, amount in amounts.items() if amount}
