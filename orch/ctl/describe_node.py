"""The text of `orchctl describe node`, from the node, its lease and its pods; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orch.ctl import sheet
from orch.wire import raw
from orch.wire.quantity import format_bytes, format_milli, to_bytes, to_milli
from orch.wire.table_columns import node_roles
from orch.wire.table_layout import age

Record = Mapping[str, Any]
_UNSET = "<unset>"


def lines(
    node: Record, lease: Record | None, pods: Sequence[Record] | None, now: datetime
) -> list[str]:
    """Everything but the events.

    `lease` is None when the node has none or it may not be read, `pods` when they may not be
    listed.
    """
    status = raw.mapping(node, "status")
    return [
        *sheet.fields(_head(node)),
        *_lease(lease),
        *_conditions(status),
        *sheet.titled("Addresses", _typed(raw.records(status, "addresses"))),
        *sheet.titled("Capacity", _texts(raw.mapping(status, "capacity"))),
        *sheet.titled("Allocatable", _texts(raw.mapping(status, "allocatable"))),
        *sheet.titled("System Info", _texts(raw.mapping(status, "nodeInfo"))),
        *_features(status),
        *_use(raw.mapping(status, "allocatable"), pods, now),
    ]


def _head(node: Record) -> list[tuple[str, sheet.Value]]:
    metadata = raw.mapping(node, "metadata")
    return [
        ("Name", raw.text(metadata, "name")),
        ("Roles", node_roles(node)),
        ("Labels", sheet.pairs_of(raw.mapping(metadata, "labels"))),
        ("Annotations", sheet.pairs_of(raw.mapping(metadata, "annotations"))),
        ("CreationTimestamp", raw.text(metadata, "creationTimestamp")),
        ("Taints", [_taint(taint) for taint in raw.records(node, "spec", "taints")]),
        ("Unschedulable", str(raw.value(node, "spec", "unschedulable") is True).lower()),
    ]


def _taint(taint: Record) -> str:
    value = raw.text(taint, "value")
    equals = f"={value}" if value else ""
    return f"{raw.text(taint, 'key')}{equals}:{raw.text(taint, 'effect')}"


def _lease(lease: Record | None) -> list[str]:
    if lease is None:
        return ["Lease:  none, or it may not be read"]
    names = ("holderIdentity", "acquireTime", "renewTime")
    shown = [(n[0].upper() + n[1:], raw.text(lease, "spec", n) or _UNSET) for n in names]
    return sheet.titled("Lease", shown)


def _conditions(status: Record) -> list[str]:
    columns = ("type", "status", "lastHeartbeatTime", "lastTransitionTime", "reason", "message")
    header = [name[0].upper() + name[1:] for name in columns]
    rows = [[raw.text(c, name) for name in columns] for c in raw.records(status, "conditions")]
    return sheet.table("Conditions", header, rows)


def _typed(addresses: Sequence[Record]) -> list[tuple[str, sheet.Value]]:
    return [(raw.text(a, "type"), raw.text(a, "address")) for a in addresses]


def _texts(mapping: Mapping[str, Any]) -> list[tuple[str, sheet.Value]]:
    return [(key, str(value)) for key, value in sorted(mapping.items())]


def _features(status: Record) -> list[str]:
    features = raw.value(status, "declaredFeatures")
    if not isinstance(features, list):
        return []
    return sheet.fields([("Declared Features", ", ".join(map(str, features)))])


def _use(allocatable: Record, pods: Sequence[Record] | None, now: datetime) -> list[str]:
    """The pods and what they ask for; without them no sum, which would be a wrong one."""
    if pods is None:
        return ["Non-terminated Pods:  they may not be listed"]
    return [*_pods(pods, now), *_allocated(allocatable, pods)]


def _pods(pods: Sequence[Record], now: datetime) -> list[str]:
    rows = [
        (
            raw.text(pod, "metadata", "namespace"),
            raw.text(pod, "metadata", "name"),
            *(_amount([pod], kind, what) for what in ("cpu", "memory") for kind in _KINDS),
            age(pod, now),
        )
        for pod in pods
    ]
    header = ("Namespace", "Name", "CPU Requests", "CPU Limits", "Memory Requests",
              "Memory Limits", "Age")  # fmt: skip
    return sheet.table(f"Non-terminated Pods ({len(pods)} in total)", header, rows)


_KINDS = ("requests", "limits")


def _allocated(allocatable: Record, pods: Sequence[Record]) -> list[str]:
    rows = []
    for what in ("cpu", "memory"):
        amounts = [_share(pods, kind, what, allocatable.get(what)) for kind in _KINDS]
        rows.append((what, *amounts))
    return sheet.table("Allocated resources", ("Resource", "Requests", "Limits"), rows)


def _share(pods: Sequence[Record], kind: str, what: str, whole: Any) -> str:
    """An amount and its share of what can be allocated."""
    shown = _amount(pods, kind, what)
    try:
        total = to_milli(whole)
    except (ValueError, TypeError):
        return shown
    return f"{shown} ({to_milli(shown) * 100 // total}%)" if total else shown


def _amount(pods: Sequence[Record], kind: str, what: str) -> str:
    convert = to_milli if what == "cpu" else to_bytes
    total = 0
    for pod in pods:
        for container in raw.records(pod, "spec", "containers"):
            amount = raw.value(container, "resources", kind, what)
            try:
                total += convert(amount) if amount is not None else 0
            except ValueError:
                continue  # the API server accepts none such; shown as if not asked for
    return format_milli(total) if what == "cpu" else format_bytes(total)
