"""What containers request and may use at most: mistakes in names and amounts; pure.

Rules, field paths and texts are the reference's (K:pkg/apis/core/validation). What a pod's amounts
add up to is in `podspec`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from decimal import Decimal
from typing import Any

from orch.wire import causes, quantity, raw
from orch.wire.errors import Cause
from orch.wire.validation import qualified_name_problems

Document = Mapping[str, Any]

RESIZED = ("cpu", "memory")
NOT_NEGATIVE = "must be greater than or equal to 0"
_STANDARD = (*RESIZED, "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_NATIVE = "kubernetes.io/"
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
    if names.isdisjoint(RESIZED) and any(name.startswith(_HUGE_PAGES) for name in names):
        yield causes.forbidden(path, "HugePages require cpu or memory")
    if resources.get("claims"):
        yield from _claim_causes(resources, f"{path}.claims", claims)


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
        if name not in _STANDARD:
            yield from causes.invalid_values(at, name, _name_problems(name))
            yield from causes.invalid_values(at, amount, _amount_problems(name, found[name]))
    return found


def _name_problems(name: str) -> tuple[str, ...]:
    if problems := qualified_name_problems(name):
        return problems
    if "/" not in name and not name.startswith(_HUGE_PAGES):
        return ("must be a standard resource for containers",)
    if _is_extended(name) and name.startswith("requests."):
        return ("doesn't follow extended resource name standard",)
    return ()


def _amount_problems(name: str, amount: Decimal) -> Iterator[str]:
    if _is_extended(name) and amount % 1:
        yield "must be an integer"
    if name.startswith(_HUGE_PAGES) and not _is_divisible(name, amount):
        yield f"it is not positive integer multiple of {_shown(name)}"


def _is_extended(name: str) -> bool:
    return "/" in name and _NATIVE not in name


def _is_exclusive(name: str) -> bool:
    """Whether it cannot be shared, so that all that is requested is what is limited."""
    return name not in _STANDARD and (_is_extended(name) or name.startswith(_HUGE_PAGES))


def _is_divisible(name: str, amount: Decimal) -> bool:
    try:
        size = quantity.parse_quantity(name.removeprefix(_HUGE_PAGES))
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
