"""The resources that containers request and are limited to: mistakes in names and amounts; pure.

Rules, field paths and texts are the reference's (K:pkg/apis/core/validation). What a pod's amounts
add up to is in `podspec`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from orch.wire import causes, quantity, raw
from orch.wire.errors import Cause
from orch.wire.podrules.podspec import LASTING, document_places
from orch.wire.validation import qualified_name_problems

Document = Mapping[str, Any]

RESIZED = ("cpu", "memory")
PARTS = ("requests", "limits")
NOT_NEGATIVE = "must be greater than or equal to 0"
STANDARD = (*RESIZED, "ephemeral-storage")
HUGE_PAGES = "hugepages-"  # resources begin with it
_NATIVE = "kubernetes.io/"
_QUOTA = "requests."
_SHOWN_MAX = 100  # characters of a name or an amount inside a text


def resource_causes(
    resources: Document, path: str, claims: frozenset[str] = frozenset()
) -> Iterator[Cause]:
    """What is wrong with limits, requests and claims; `claims` are the names of the pod's."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    most = yield from _amounts(limits, f"{path}.limits")
    wanted = yield from _amounts(requests, f"{path}.requests")
    for name, amount in wanted.items():
        if name not in limits:
            yield from _unbounded_causes(name, path)
        elif name in most and _exceeds(name, amount, most[name]):
            relation = "equal to" if _is_exclusive(name) else "less than or equal to"
            limit = f"{_shown(name)} limit of {_shown(limits[name])}"
            text = f"must be {relation} {limit}"
            yield causes.invalid_value(f"{path}.requests", requests[name], text)
    names = {*limits, *requests}
    if names.isdisjoint(RESIZED) and any(name.startswith(HUGE_PAGES) for name in names):
        yield causes.forbidden(path, "HugePages require cpu or memory")
    if resources.get("claims"):
        yield from _claim_causes(resources, f"{path}.claims", claims)


def pod_level_causes(spec: Document) -> Iterator[Cause]:
    """What is wrong with the resources of a pod as a whole, also beside those of its containers."""
    resources, path = raw.mapping(spec, "resources"), "spec.resources"
    if resources.get("claims") is not None:
        text = "claims may not be set for Resources at pod-level"
        yield causes.forbidden(f"{path}.claims", text)
    plain = {part: raw.mapping(resources, part) for part in PARTS}
    for part in PARTS:
        for name in plain[part]:
            if name not in RESIZED and not name.startswith(HUGE_PAGES):
                yield causes.not_supported(causes.at_key(f"{path}.{part}", name), name, RESIZED)
    found = [*resource_causes(plain, path)]
    yield from found
    if not found:
        yield from _consistency_causes(spec, plain, path)


def _consistency_causes(spec: Document, pod: Document, path: str) -> Iterator[Cause]:
    together = at_once(spec)
    for name, amount in pod["requests"].items():
        wanted = together.get(f"requests.{name}", 0)
        if wanted > quantity.to_milli(amount):
            shown = quantity.format_milli(wanted)
            text = f"must be greater than or equal to aggregate container requests of {shown}"
            yield causes.invalid_value(causes.at_key(f"{path}.requests", name), amount, text)
    for index, container in enumerate(raw.records(spec, "containers")):
        for name, amount in raw.mapping(container, "resources", "limits").items():
            most = pod["limits"].get(name)
            if most is not None and _is_more(amount, most):
                at = causes.at_key(f"{path}.containers[{index}]", name) + ".limits"
                text = f"must be less than or equal to pod limits of {_shown(most)}"
                yield causes.invalid_value(at, amount, text)


def _is_more(amount: Any, most: Any) -> bool:
    try:
        return quantity.parse_quantity(amount) > quantity.parse_quantity(most)
    except ValueError:
        return False  # refused where it is


Sizes = Callable[[Document], Iterable[tuple[str, int]]]


def readable_sizes(container: Document) -> Iterator[tuple[str, int]]:
    """`requests.cpu`, `limits.memory`, … of a container in thousandths, without unreadable ones."""
    for part in PARTS:
        for name, amount in raw.mapping(container, "resources", part).items():
            with contextlib.suppress(ValueError):
                yield f"{part}.{name}", quantity.to_milli(amount)


def at_once(spec: Document, sizes: Sizes = readable_sizes) -> dict[str, int]:
    """The sizes of all containers that run side by side, or if more, of an init container
    (`podspec.most_at_once`, for all names at once).
    """
    lasting: dict[str, int] = {}
    largest: dict[str, int] = {}
    for path, container in document_places(spec, LASTING):
        passes = path.startswith("spec.init") and container.get("restartPolicy") != "Always"
        for name, amount in sizes(container):
            if passes:
                largest[name] = max(largest.get(name, 0), lasting.get(name, 0) + amount)
            else:
                lasting[name] = lasting.get(name, 0) + amount
    return {name: max(largest.get(name, 0), lasting.get(name, 0)) for name in largest | lasting}


def _amounts(given: Document, path: str) -> Generator[Cause, None, dict[str, Decimal]]:
    """The readable amounts, after what is wrong with all of them."""
    found: dict[str, Decimal] = {}
    for name, amount in given.items():
        at = causes.at_key(path, name)
        try:
            found[name] = quantity.parse_quantity(amount)
        except ValueError as error:
            yield causes.invalid_value(at, amount, str(error))
            continue
        if found[name] < 0:
            yield causes.invalid_value(at, amount, NOT_NEGATIVE)
        if name not in STANDARD:
            yield from causes.invalid_values(at, name, _name_problems(name))
            yield from causes.invalid_values(at, amount, _amount_problems(name, found[name]))
    return found


def _name_problems(name: str) -> tuple[str, ...]:
    if problems := qualified_name_problems(name):
        return problems
    if "/" not in name and not name.startswith(HUGE_PAGES):
        return ("must be a standard resource for containers",)
    if _is_extended(name) and name.startswith(_QUOTA):
        return ("doesn't follow extended resource name standard",)
    return ()


def _amount_problems(name: str, amount: Decimal) -> Iterator[str]:
    if _is_extended(name) and amount % 1:
        yield "must be an integer"
    if name.startswith(HUGE_PAGES) and not _is_divisible(name, amount):
        yield f"it is not positive integer multiple of {_shown(name)}"


def is_extended_name(name: str) -> bool:
    """Whether a node may offer such a resource: `example.com/name`, in nobody's reserved domain."""
    quota = f"{_QUOTA}{name}"  # is the name to count it by, and is valid as well
    well_formed = _is_extended(name) and not name.startswith(_QUOTA)
    return well_formed and not qualified_name_problems(quota)


def _is_extended(name: str) -> bool:
    return "/" in name and _NATIVE not in name


def _is_exclusive(name: str) -> bool:
    """Whether it cannot be shared, so that all that is requested is what is limited."""
    return name not in STANDARD and (_is_extended(name) or name.startswith(HUGE_PAGES))


def _is_divisible(name: str, amount: Decimal) -> bool:
    try:
        size = quantity.parse_quantity(name.removeprefix(HUGE_PAGES))
    except ValueError:
        return False
    return size > 0 and not amount % size


def _unbounded_causes(name: str, path: str) -> Iterator[Cause]:
    if _is_exclusive(name):
        text = "Limit must be set for non overcommitable resources"
        yield causes.required(f"{path}.limits", text)


def _exceeds(name: str, amount: Decimal, limit: Decimal) -> bool:
    return amount != limit if _is_exclusive(name) else amount > limit


def _shown(value: Any) -> str:
    return str(value)[:_SHOWN_MAX]


def _claim_causes(resources: Document, path: str, claims: frozenset[str]) -> Iterator[Cause]:
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(raw.records(resources, "claims")):
        at, name = f"{path}[{index}]", raw.text(claim, "name")
        key = name, raw.text(claim, "request")
        if not name:
            yield causes.required(at)
        elif key in seen:
            yield causes.duplicate(at, name)
        elif name not in claims:
            yield causes.not_found(at, name)
        seen.add(key)
