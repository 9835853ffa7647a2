"""Nodes, reported by their agents, cordoned and tainted by others; Leases; and RuntimeClasses,
which name the handlers of nodes' runtimes; pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import orjson

from orch.server.strategy.base import Document, Strategy, keep_spec, keep_status
from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.podrules.placement import label_causes, toleration_causes
from orch.wire.podrules.podspec import EFFECTS
from orch.wire.podrules.resources import resource_causes
from orch.wire.records.kinds import LEASES, NODES, RUNTIME_CLASSES
from orch.wire.times import is_time
from orch.wire.validation import (
    dns1123_label_problems,
    label_value_problems,
    qualified_name_problems,
)

MAX_STATUS_BYTES = 256 * 1024  # 50 images take about 15 KiB
MAX_OTHER_BYTES = 512 * 1024  # labels and annotations may have as much
MAX_LEASE_BYTES = 64 * 1024  # a usual one has 500
_RANGES = ("podCIDR", "podCIDRs")
_SET_ONCE = (*_RANGES, "providerID")
_NO_RANGE = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def _validate(new: Document, old: Document | None) -> Iterator[Cause]:
    spec = new.get("spec") or {}
    before = (old or {}).get("spec") or {}
    if spec.get("taints") != before.get("taints"):
        yield from _taint_causes(spec.get("taints") or [])
    if [spec.get(name) for name in _RANGES] != [before.get(name) for name in _RANGES]:
        yield from _range_causes(spec)
    for name in _SET_ONCE:
        if before.get(name) and spec.get(name) != before.get(name):
            why = "node updates may not change it once it is set"
            yield causes.forbidden(f"spec.{name}", why)
    yield from _growth_causes(new, old, MAX_OTHER_BYTES)
    status = new.get("status") or {}
    size = len(orjson.dumps(status))
    if size > MAX_STATUS_BYTES and status != (old or {}).get("status"):
        yield _too_long("status", size, MAX_STATUS_BYTES)
        return
    yield from _address_causes(status.get("addresses") or [])


def _growth_causes(new: Document, old: Document | None, most: int) -> Iterator[Cause]:
    """Of all but a status, with fields that no such object has: nodes write them, too."""
    size, before = (len(orjson.dumps({**(one or {}), "status": None})) for one in (new, old))
    if size > max(most, before):
        yield _too_long("spec", size, most)


def _too_long(path: str, size: int, most: int) -> Cause:
    return causes.too_long(path, f"has {size} bytes as JSON, may have at most {most}")


def _range_causes(spec: Document) -> Iterator[Cause]:
    """The addresses of the node's pods: one range of each family, the first also as `podCIDR`."""
    first, ranges = spec.get("podCIDR"), spec.get("podCIDRs") or []
    families = [_family(text) for text in ranges[:3]]
    for index, family in enumerate(families):
        if family is None:
            yield causes.invalid_value(f"spec.podCIDRs[{index}]", ranges[index], _NO_RANGE)
    if len(families) > 1 and (len(families) > 2 or len(set(families)) == 1):
        text = "may specify no more than one CIDR for each IP family"
        yield causes.invalid_value("spec.podCIDRs", ranges[:3], text)
    if first and ranges and first != ranges[0]:
        text = f"must be the first of podCIDRs, {ranges[0]}"
        yield causes.invalid_value("spec.podCIDR", first, text)
    elif first and not ranges and _family(first) is None:
        yield causes.invalid_value("spec.podCIDR", first, _NO_RANGE)


def _family(text: str) -> int | None:
    """4 or 6; None for what is no range of addresses. Bits of a host are allowed."""
    _, _, length = text.partition("/")
    try:
        return ipaddress.ip_interface(text).version if length.isdecimal() else None
    except ValueError:
        return None


def _taint_causes(taints: list[Document]) -> Iterator[Cause]:
    seen = set()
    for index, taint in enumerate(taints):
        path = f"spec.taints[{index}]"
        key, value, effect = taint.get("key", ""), taint.get("value") or "", taint.get("effect")
        for problem in qualified_name_problems(key):
            yield causes.invalid_value(f"{path}.key", key, problem)
        for problem in label_value_problems(value):
            yield causes.invalid_value(f"{path}.value", value, problem)
        if effect not in EFFECTS:
            yield causes.not_supported(f"{path}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            yield causes.duplicate(path, taint)
        seen.add((key, effect))


def _address_causes(addresses: list[Document]) -> Iterator[Cause]:
    seen = set()
    for index, address in enumerate(addresses):
        identity = (address.get("type"), address.get("address"))
        if identity in seen:
            yield causes.duplicate(f"status.addresses[{index}]", address)
        seen.add(identity)


NODE_STRATEGY = Strategy(
    NODES,
    paths=("spec.unschedulable",),
    defaults={"spec.unschedulable": "false"},
    prepare_update=keep_status,
    prepare_status=keep_spec,
    validate=_validate,
)


def _validate_lease(new: Document, old: Document | None) -> Iterator[Cause]:
    yield from _growth_causes(new, old, MAX_LEASE_BYTES)
    spec = new.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield causes.invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        yield causes.invalid_value(
            "spec.leaseTransitions", transitions, "must be greater than or equal to 0"
        )
    for name in ("acquireTime", "renewTime"):
        moment = spec.get(name)
        if moment is not None and not is_time(moment):
            yield causes.invalid_value(f"spec.{name}", moment, "must be an RFC 3339 time")


LEASE_STRATEGY = Strategy(LEASES, validate=_validate_lease, records_managers=False)


def _validate_class(new: Document, old: Document | None) -> Iterator[Cause]:
    """As the reference's pkg/apis/node."""
    handler = new.get("handler") or ""
    if old is not None and handler != (old.get("handler") or ""):
        yield causes.invalid_value("handler", handler, "field is immutable")
    if old is None:
        yield from causes.invalid_values("handler", handler, dns1123_label_problems(handler))
    fixed = raw.mapping(new, "overhead", "podFixed")
    yield from resource_causes({"limits": fixed}, "overhead")
    scheduling = raw.mapping(new, "scheduling")
    yield from label_causes(raw.mapping(scheduling, "nodeSelector"), "scheduling.nodeSelector")
    yield from toleration_causes(scheduling, "scheduling")


RUNTIME_CLASS_STRATEGY = Strategy(RUNTIME_CLASSES, validate=_validate_class)
