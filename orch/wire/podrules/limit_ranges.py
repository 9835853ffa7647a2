"""LimitRanges: what containers and pods of a namespace get and may ask for; pure.

Rules and texts are the reference's (plugin/pkg/admission/limitranger). `limits` of the type
PersistentVolumeClaim are checked and stored, and have no effect: there are no such claims.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.quantity import parse_quantity
from orch.wire.validation import qualified_name_problems

Document = dict[str, Any]
Amounts = Mapping[str, Any]  # quantities as they were sent, by the name of a resource

CONTAINER, POD, CLAIM = "Container", "Pod", "PersistentVolumeClaim"
ANNOTATION = "kubernetes.io/limit-ranger"
ANNOTATION_MAX = 4096  # characters
OF_PODS = ("min", "max", "maxLimitRequestRatio")
MAX_RANGES = 8  # of a namespace: each is held against each container of a new pod
_MAX_NAMES = 16  # of resources, in one map
_TYPES = (CONTAINER, POD, CLAIM)
_DEFAULTS = ("default", "defaultRequest")
_MAPS = ("max", "min", *_DEFAULTS, "maxLimitRequestRatio")


# What must not be greater than what, the field that is wrong then, and the text.
_ORDER = (
    ("min", "max", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest",
     "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest",
     "default request value {} is greater than max value {}"),
    ("defaultRequest", "default", "defaultRequest",
     "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default", "default value {} is greater than max value {}"),
)  # fmt: skip


def complete(document: Document) -> None:
    """Fill in the defaults of containers that follow from other amounts."""
    spec = document.get("spec") or {}
    if items := spec.get("limits"):
        document["spec"] = {**spec, "limits": [_completed(item) for item in items]}


def _completed(item: Document) -> Document:
    if item.get("type") != CONTAINER:
        return item
    most = {**(item.get("max") or {}), **(item.get("default") or {})}
    wanted = {**(item.get("min") or {}), **most, **(item.get("defaultRequest") or {})}
    given = zip(_DEFAULTS, (most, wanted), strict=True)
    return {**item, **{name: amounts for name, amounts in given if amounts}}


def range_causes(document: Document) -> Iterator[Cause]:
    """What is wrong with a LimitRange."""
    seen = set()
    for index, item in enumerate((document.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{index}]", item.get("type") or ""
        if kind not in _TYPES:
            yield causes.not_supported(f"{path}.type", kind, _TYPES)
        if kind in seen:
            yield causes.duplicate(f"{path}.type", kind)
        seen.add(kind)
        yield from _item_causes(item, path)


def _item_causes(item: Document, path: str) -> Iterator[Cause]:
    kind = item.get("type")
    for name in _DEFAULTS:
        if kind == POD and item.get(name):
            text = f"may not be specified when `type` is '{POD}'"
            yield causes.forbidden(f"{path}.{name}", text)
    if kind == CLAIM and not any("storage" in (item.get(name) or {}) for name in ("min", "max")):
        text = "either minimum or maximum storage value is required, but neither was provided"
        yield causes.required(f"{path}.limits", text)
    amounts: dict[str, dict[str, Decimal]] = {}
    for name in _MAPS:
        amounts[name] = yield from _amounts(item.get(name) or {}, f"{path}.{name}")
    for low, high, place, text in _ORDER:
        for resource in amounts[low].keys() & amounts[high].keys():
            if amounts[low][resource] > amounts[high][resource]:
                shown = item[low][resource], item[high][resource]
                where = causes.at_key(f"{path}.{place}", resource)
                yield causes.invalid_value(where, shown[0], text.format(*shown))
    for resource, ratio in amounts["maxLimitRequestRatio"].items():
        bounds = amounts["min"].get(resource), amounts["max"].get(resource)
        where = causes.at_key(f"{path}.maxLimitRequestRatio", resource)
        yield from _ratio_causes(ratio, item["maxLimitRequestRatio"][resource], bounds, where)


def _ratio_causes(
    ratio: Decimal, given: Any, bounds: tuple[Decimal | None, Decimal | None], where: str
) -> Iterator[Cause]:
    least, most = bounds
    if ratio < 1:
        yield causes.invalid_value(where, given, f"ratio {given} is less than 1")
    if least and most is not None and ratio > most / least:
        text = f"ratio {given} is greater than max/min = {float(most / least):f}"
        yield causes.invalid_value(where, given, text)


def _amounts(amounts: Amounts, path: str) -> Generator[Cause, None, dict[str, Decimal]]:
    """Returns those that are quantities."""
    found: dict[str, Decimal] = {}
    if len(amounts) > _MAX_NAMES:
        yield causes.too_many(path, len(amounts), _MAX_NAMES)
        return found
    for name, amount in amounts.items():
        place = causes.at_key(path, name)
        yield from causes.invalid_values(place, name, qualified_name_problems(name))
        try:
            found[name] = parse_quantity(amount)
        except ValueError as error:
            yield causes.invalid_value(place, amount, str(error))
    return found


# ---- what they do to a pod


def items_of(ranges: Sequence[Document], kind: str) -> list[Document]:
    """What the LimitRanges of a namespace say of one type, in the order of their names."""
    found = (item for each in ranges for item in (each.get("spec") or {}).get("limits") or ())
    return [item for item in found if item.get("type") == kind]


def give_defaults(spec: Document, ranges: Sequence[Document]) -> str:
    """Give containers the sizes that they do not name; says what they were given, "" for nothing.

    `spec` is changed.
    """
    items = items_of(ranges, CONTAINER)
    told = []
    if not items:
        return ""
    for title, field in (("container", "containers"), ("init container", "initContainers")):
        for container in spec.get(field) or ():
            for part, name in (("requests", "defaultRequest"), ("limits", "default")):
                given = _give(container, part, [item.get(name) or {} for item in items])
                if given:
                    what = f"{', '.join(given)} {part.removesuffix('s')}"
                    told.append(f"{what} for {title} {container.get('name', '')}")
    return f"LimitRanger plugin set: {'; '.join(told)}" if told else ""


def _give(container: Document, part: str, defaults: Sequence[Amounts]) -> list[str]:
    """The names of what it did not have."""
    resources = container.get("resources") or {}
    own = resources.get(part) or {}
    more: dict[str, Any] = {}
    for amounts in defaults:
        more = {**amounts, **more}
    given = sorted(more.keys() - own.keys())
    if given:
        container["resources"] = {**resources, part: {**more, **own}}
    return given


def problems(
    items: Sequence[Document], kind: str, requests: Amounts, limits: Amounts
) -> Iterator[str]:
    """What the items of a type have against these sizes, which are valid quantities."""
    for item in items:
        for resource, least in (item.get("min") or {}).items():
            yield from _below(resource, kind, least, (requests, limits))
        for resource, most in (item.get("max") or {}).items():
            yield from _above(resource, kind, most, (requests, limits))
        for resource, ratio in (item.get("maxLimitRequestRatio") or {}).items():
            yield from _beyond(resource, kind, ratio, (requests, limits))


def _below(resource: str, kind: str, least: Any, sizes: tuple[Amounts, Amounts]) -> Iterator[str]:
    text = f"minimum {resource} usage per {kind} is {least}"
    if resource not in sizes[0]:
        yield f"{text}.  No request is specified"
        return
    for what, amounts in zip(("request", "limit"), sizes, strict=True):
        amount = amounts.get(resource)
        if amount is not None and parse_quantity(amount) < parse_quantity(least):
            yield f"{text}, but {what} is {amount}"
            return


def _above(resource: str, kind: str, most: Any, sizes: tuple[Amounts, Amounts]) -> Iterator[str]:
    text = f"maximum {resource} usage per {kind} is {most}"
    if resource not in sizes[1]:
        yield f"{text}.  No limit is specified"
        return
    for what, amounts in (("limit", sizes[1]), ("request", sizes[0])):
        amount = amounts.get(resource)
        if amount is not None and parse_quantity(amount) > parse_quantity(most):
            yield f"{text}, but {what} is {amount}"
            return


def _beyond(resource: str, kind: str, ratio: Any, sizes: tuple[Amounts, Amounts]) -> Iterator[str]:
    text = f"{resource} max limit to request ratio per {kind} is {ratio}, but"
    found = []
    for what, amounts in zip(("request", "limit"), sizes, strict=True):
        amount = parse_quantity(amounts.get(resource, 0))
        if not amount:
            yield f"{text} no {what} is specified or {what} is 0"
            return
        found.append(amount)
    request, limit = found
    if limit / request > parse_quantity(ratio):
        yield f"{text} provided ratio is {float(limit / request):f}"
