"""ResourceQuotas: what the objects of a namespace may amount to, and what they do; pure.

Names, scopes and texts are the reference's (pkg/apis/core/validation, pkg/quota/v1), with one name
of this service's own: `orch.io/bytes`, all objects of the namespace as they are stored. Names of
kinds that are not served count nothing. A quota holds at once, but an amount that was not measured
yet (`controllers.quota_usage`) is unknown, and what would add to it is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from orch.server.strategy.base import Document, Strategy, keep_spec, keep_status, text_at
from orch.wire import causes, quantity, raw
from orch.wire.errors import Cause
from orch.wire.names import QUOTA_BYTES
from orch.wire.podrules.podspec import (
    BEST_EFFORT,
    FINAL_PHASES,
    LASTING,
    document_places,
)
from orch.wire.podrules.resources import at_once
from orch.wire.records.aliases import OWN_BY_UPSTREAM
from orch.wire.records.kinds import PODS, RESOURCE_QUOTAS, Resource
from orch.wire.validation import qualified_name_problems

ONE = 1000  # amounts are thousandths, so that those of cpu are whole, too
Amounts = Mapping[str, int]

_COUNT, _COUNT_PODS = "count/", "count/pods"
_PARTS = ("requests", "limits")
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_REQUIRED = frozenset(
    (*_COMPUTE[:2], *(f"{part}.{name}" for part in _PARTS for name in _COMPUTE[:2]))
)
_OBJECTS = frozenset(
    (
        "configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers", "resourcequotas",
        "secrets", "services", "services.loadbalancers", "services.nodeports",
    )
)  # fmt: skip
_STANDARD = _OBJECTS | {
    *_COMPUTE,
    *(f"{part}.{name}" for part in _PARTS for name in _COMPUTE),
    "requests.storage",
}
_PREFIXES = ("requests.", "limits.", "hugepages-")

_TERMINATING, _NOT_TERMINATING = "Terminating", "NotTerminating"
_BEST_EFFORT, _NOT_BEST_EFFORT = BEST_EFFORT, f"Not{BEST_EFFORT}"
PRIORITY_CLASS = "PriorityClass"
_SCOPES = (_TERMINATING, _NOT_TERMINATING, _BEST_EFFORT, _NOT_BEST_EFFORT, PRIORITY_CLASS)
_CONFLICTS = ({_TERMINATING, _NOT_TERMINATING}, {_BEST_EFFORT, _NOT_BEST_EFFORT})
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class Exceeded(Exception):
    """What a quota has against a write; the text is the reference's."""


# ---- which objects a quota is about


def covers(quota: Document, resource: Resource, document: Document) -> bool:
    """Whether an object is in all scopes of the quota; only pods are in any."""
    wanted = requirements(quota)
    return not wanted or (
        resource is PODS and all(_is_in(document, requirement) for requirement in wanted)
    )


def requirements(quota: Document) -> list[Document]:
    """The scopes and the selector of a quota, in one form."""
    spec = quota.get("spec") or {}
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    return [*scopes, *((spec.get("scopeSelector") or {}).get("matchExpressions") or ())]


def _is_in(pod: Document, requirement: Document) -> bool:
    scope = requirement["scopeName"]
    if scope == PRIORITY_CLASS:
        return selects(requirement, text_at(pod, "spec.priorityClassName"))
    ends = (pod.get("spec") or {}).get("activeDeadlineSeconds") is not None
    best_effort = text_at(pod, "status.qosClass") == BEST_EFFORT
    return {
        _TERMINATING: ends,
        _NOT_TERMINATING: not ends,
        _BEST_EFFORT: best_effort,
        _NOT_BEST_EFFORT: not best_effort,
    }.get(scope, False)


def selects(requirement: Document, name: str) -> bool:
    """Whether a requirement on priority classes is met by one; "": by none."""
    values = requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "Exists":
            return bool(name)
    return not name


# ---- what they amount to


def of_pod(names: Collection[str], pod: Document) -> dict[str, int]:
    """What a pod adds to those of the names that are of pods; once it has ended, it is counted as
    an object only. Linear in the size of the pod.
    """
    whole = {
        name: name if name == "pods" else _whole_name(name) for name in names if is_of_pods(name)
    }
    found = dict.fromkeys(whole, 0)
    if text_at(pod, "status.phase") not in FINAL_PHASES:
        amounts = _at_once(pod, frozenset(whole.values()))
        found = {name: amounts.get(each, 0) for name, each in whole.items()}
        if "pods" in found:
            found["pods"] = ONE
    return found | {name: ONE for name in names if name == _COUNT_PODS}


def _at_once(pod: Document, wanted: frozenset[str]) -> dict[str, int]:
    """The wanted sizes of a pod: of its containers, or where it says so, of the whole."""
    spec, holders = pod.get("spec") or {}, _holders(pod)
    found = at_once(spec, partial(_sizes, wanted, holders))
    found |= dict(_sizes(wanted, {"": [pod.get("status") or {}]}, spec))
    return _with_overhead(found, spec.get("overhead") or {}, wanted)


def _with_overhead(
    found: dict[str, int], overhead: Mapping[str, Any], wanted: frozenset[str]
) -> dict[str, int]:
    """Of the pod's runtime class; it is added to a limit only where there is one."""
    for name, amount in overhead.items():
        requests, limits = (f"{part}.{name}" for part in _PARTS)
        if requests in wanted:
            found[requests] = found.get(requests, 0) + quantity.to_milli(amount)
        if found.get(limits):
            found[limits] += quantity.to_milli(amount)
    return found


def _holders(pod: Document) -> Mapping[str, list[Mapping[str, Any]]]:
    """What the node says of each container; until a smaller size is in force the larger counts."""
    status, found = pod.get("status") or {}, {}
    for name in ("initContainerStatuses", "containerStatuses"):
        for each in raw.records(status, name):
            found[raw.text(each, "name")] = [each]
    return found


def _sizes(
    wanted: frozenset[str], holders: Mapping[str, list[Mapping[str, Any]]], sized: Document
) -> Iterator[tuple[str, int]]:
    """The wanted sizes of a container, or of a spec, which has no name."""
    told = holders.get(sized.get("name") or "", ())
    for part in _PARTS:
        for name, amount in _of(sized, part).items():
            if (whole := f"{part}.{name}") in wanted:
                yield whole, max([quantity.to_milli(amount), *_told(told, part, name)])


def _told(statuses: Iterable[Mapping[str, Any]], part: str, name: str) -> Iterator[int]:
    for status in statuses:
        granted = raw.mapping(status, "allocatedResources") if part == "requests" else {}
        for amounts in (granted, raw.mapping(status, "resources", part)):
            with contextlib.suppress(ValueError):
                yield quantity.to_milli(amounts.get(name, 0))


def _of(container: Document, part: str) -> Mapping[str, Any]:
    return (container.get("resources") or {}).get(part) or {}


def is_of_pods(name: str) -> bool:
    """Whether a name can only be measured by looking at each pod."""
    return name == "pods" or name in _COMPUTE or name.startswith(_PREFIXES)


def _whole_name(name: str) -> str:
    """`cpu` means the requests."""
    return name if name.startswith(_PREFIXES[:2]) else f"requests.{name}"


def counted_kind(name: str) -> str:
    """The kind whose objects a name counts, as in keys of storage; "" for other names."""
    if name in _OBJECTS:
        return name
    plural, dot, group = name.removeprefix(_COUNT).partition(".")
    if not name.startswith(_COUNT):
        return ""
    return f"{plural}{dot}{OWN_BY_UPSTREAM.get(group, group)}"


def added(names: Collection[str], resource: Resource, document: Document, size: int) -> Amounts:
    """What a new object of `size` bytes adds to those of the names that it adds to at all."""
    found = {name: ONE for name in names if counted_kind(name) == resource.stored_name}
    if resource is PODS:
        found |= of_pod(names, document)
    if QUOTA_BYTES in names and resource is not RESOURCE_QUOTAS:
        found[QUOTA_BYTES] = size * ONE
    return found


# ---- charging


def grown(names: Collection[str], pod: Document, before: Document) -> Amounts:
    """What a pod has become larger by, of the names that are of pods; what shrinks counts when it
    is measured.
    """
    was, now = of_pod(names, before), of_pod(names, pod)
    return {name: amount - was[name] for name, amount in now.items() if amount > was[name]}


def charged(quota: Document, amounts: Amounts) -> Document | None:
    """The quota with these amounts in use, too; None when it stays as it is. Exceeded."""
    hard, used = hard_of(quota), used_of(quota)
    unknown = sorted(amounts.keys() - used.keys())
    if unknown:
        name = quota["metadata"]["name"]
        raise Exceeded(f"status unknown for quota: {name}, resources: {','.join(unknown)}")
    after = {name: used[name] + amount for name, amount in amounts.items() if amount}
    limits = {name: quantity.to_milli(hard[name]) for name in after}
    exceeded = sorted(name for name in after if after[name] > limits[name])
    if exceeded:
        texts = (
            ",".join(f"{name}={shown}" for name, shown in some.items())
            for some in (
                {name: written(name, amounts[name]) for name in exceeded},
                {name: written(name, used[name]) for name in exceeded},
                {name: hard[name] for name in exceeded},
            )
        )
        text = "exceeded quota: {}, requested: {}, used: {}, limited: {}"
        raise Exceeded(text.format(quota["metadata"]["name"], *texts))
    return with_used(quota, {**used, **after}) if after else None


def require_amounts(quota: Document, pod: Document) -> None:
    """Exceeded unless every container says how much it takes of cpu and memory in the quota."""
    missing: dict[str, list[str]] = {}
    spec = pod.get("spec") or {}
    whole = {f"{part}.{name}" for part in _PARTS for name in _of(spec, part)}
    whole |= _of(spec, "requests").keys()
    for _, container in document_places(spec, LASTING):
        has = {f"{part}.{name}" for part in _PARTS for name in _of(container, part)}
        has |= _of(container, "requests").keys() | whole
        for name in _REQUIRED & hard_of(quota).keys() - has:
            missing.setdefault(name, []).append(container.get("name") or "")
    if missing:
        texts = (f"{name} for: {','.join(sorted(who))}" for name, who in sorted(missing.items()))
        name = quota["metadata"]["name"]
        raise Exceeded(f"failed quota: {name}: must specify {'; '.join(texts)}")


def hard_of(quota: Document) -> Mapping[str, Any]:
    return (quota.get("spec") or {}).get("hard") or {}


def used_of(quota: Document) -> dict[str, int]:
    """The amounts that are known; {} before the first measurement."""
    used = (quota.get("status") or {}).get("used") or {}
    return {name: quantity.to_milli(text) for name, text in used.items()}


def with_used(quota: Document, used: Amounts) -> Document:
    """The quota with the names of its spec, and these amounts, in its status."""
    hard = hard_of(quota)
    shown = {name: written(name, used[name]) for name in hard if name in used}
    return {**quota, "status": {"hard": dict(hard), "used": shown}}


def written(name: str, amount: int) -> str:
    """An amount as text: bytes with binary suffixes, cpu in thousandths, others plain."""
    if name.endswith("cpu"):
        return quantity.format_milli(amount)
    whole = -(-amount // ONE)
    is_size = name.endswith(("memory", "storage", "bytes"))
    return quantity.format_bytes(whole) if is_size else str(whole)


# ---- the strategy


def _validate(new: Document, old: Document | None) -> Iterator[Cause]:
    spec = new.get("spec") or {}
    for name, amount in hard_of(new).items():
        for problem in _problems(name, amount):
            yield causes.invalid_value(f"spec.hard[{name}]", amount, problem)
    wanted = requirements(new)
    names = [requirement["scopeName"] for requirement in wanted]
    for name in names:
        if name not in _SCOPES:
            yield causes.not_supported("spec.scopes", name, _SCOPES)
    if any(both <= set(names) for both in _CONFLICTS):
        yield causes.invalid_value("spec.scopes", names, "conflicting scopes")
    for requirement in wanted:
        yield from _selector_causes(requirement)
    if names and not all(_may_be_scoped(name, names) for name in hard_of(new)):
        yield causes.invalid_value("spec.scopes", names, "unsupported scope applied to resource")
    before = (old or new).get("spec") or {}
    for field in ("scopes", "scopeSelector"):
        if (spec.get(field) or None) != (before.get(field) or None):
            yield causes.invalid_value(f"spec.{field}", spec.get(field), "field is immutable")


def _problems(name: str, amount: Any) -> Iterator[str]:
    yield from qualified_name_problems(name)
    if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        yield "must be a standard resource for quotas"
    try:
        value = quantity.parse_quantity(amount)
    except ValueError as error:
        yield str(error)
        return
    if value < 0:
        yield "must be greater than or equal to 0"
    elif (name in _OBJECTS or name.startswith(_COUNT)) and value % 1:
        yield "must be an integer"


def _selector_causes(requirement: Document) -> Iterator[Cause]:
    path = "spec.scopeSelector.matchExpressions"
    operator, values = requirement["operator"], requirement.get("values") or ()
    if operator not in _OPERATORS:
        yield causes.not_supported(f"{path}.operator", operator, _OPERATORS)
    elif requirement["scopeName"] != PRIORITY_CLASS and operator != "Exists":
        text = "must be 'Exists' for every scope but PriorityClass"
        yield causes.invalid_value(f"{path}.operator", operator, text)
    elif (operator in ("In", "NotIn")) is not bool(values):
        needs = "must be at least one scope value" if not values else "must be no scope value"
        yield causes.invalid_value(f"{path}.values", list(values), f"{needs} for {operator}")


def _may_be_scoped(name: str, scopes: Iterable[str]) -> bool:
    if _BEST_EFFORT in scopes:
        return name in ("pods", _COUNT_PODS)
    return is_of_pods(name) or name == _COUNT_PODS


def _prepare_create(document: Document) -> None:
    document["status"] = {}


STRATEGY = Strategy(
    RESOURCE_QUOTAS,
    prepare_create=_prepare_create,
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate,
)
