"""The text of `orchctl describe node`, from the node, its lease and its pods; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orch.ctl import amounts, sheet
from orch.ctl.amounts import Amount
from orch.wire import raw
from orch.wire.tables.columns import node_roles
from orch.wire.tables.layout import age

Record = Mapping[str, Any]
_UNSET = "<unset>"
_CONDITIONS = (
    "Type", "Status", "LastHeartbeatTime", "LastTransitionTime", "Reason", "Message",
)  # fmt: skip
_INFO = {
    "Machine ID": "machineID", "System UUID": "systemUUID", "Boot ID": "bootID",
    "Kernel Version": "kernelVersion", "OS Image": "osImage",
    "Operating System": "operatingSystem", "Architecture": "architecture",
    "Container Runtime Version": "containerRuntimeVersion",
    "Kubelet Version": "kubeletVersion", "Kube-Proxy Version": "kubeProxyVersion",
}  # fmt: skip
_PODS = (
    "Namespace", "Name", "", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits",
    "Age",
)  # fmt: skip
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"
_PARTS: tuple[amounts.Part, ...] = ("requests", "limits")


def lines(
    node: Record, lease: Record | str, pods: Sequence[Record] | None, now: datetime
) -> list[str]:
    """Everything but the events.

    `lease` is the text of the error when it cannot be read; `pods` is None when they may not be
    listed.
    """
    status = raw.mapping(node, "status")
    capacity, allocatable = (raw.mapping(status, name) for name in ("capacity", "allocatable"))
    return [
        *_head(node),
        *_lease(lease),
        *_conditions(raw.records(status, "conditions")),
        "Addresses:",
        *(
            sheet.field(raw.text(address, "type"), raw.text(address, "address"), 1)
            for address in raw.records(status, "addresses")
        ),
        *_resources("Capacity", capacity),
        *_resources("Allocatable", allocatable),
        "System Info:",
        *(sheet.field(t, raw.text(status, "nodeInfo", name), 1) for t, name in _INFO.items()),
        *_spec(raw.mapping(node, "spec")),
        *_use(allocatable or capacity, pods, now),
    ]


def _head(node: Record) -> list[str]:
    spec = raw.mapping(node, "spec")
    taints = sorted(
        raw.records(spec, "taints"), key=lambda t: f"{raw.text(t, 'effect')},{raw.text(t, 'key')}"
    )
    created = raw.text(node, "metadata", "creationTimestamp")
    return [
        sheet.field("Name", raw.text(node, "metadata", "name")),
        sheet.field("Roles", node_roles(node)),
        *sheet.marks(node),
        sheet.field("CreationTimestamp", sheet.moment(created)),
        *sheet.listed("Taints", [_taint(taint) for taint in taints]),
        sheet.field("Unschedulable", str(raw.value(spec, "unschedulable") is True).lower()),
    ]


def _taint(taint: Record) -> str:
    value, effect = raw.text(taint, "value"), raw.text(taint, "effect")
    shown = raw.text(taint, "key") + (f"={value}" if value else "")
    return f"{shown}:{effect}" if effect or value else shown


def _lease(lease: Record | str) -> list[str]:
    if isinstance(lease, str):
        return [sheet.field("Lease", f"Failed to get lease: {lease}")]
    spec = raw.mapping(lease, "spec")
    shown = [("HolderIdentity", raw.text(spec, "holderIdentity") or _UNSET)]
    for name in ("acquireTime", "renewTime"):
        moment = raw.text(spec, name)
        shown.append((name[0].upper() + name[1:], sheet.moment(moment) if moment else _UNSET))
    return ["Lease:", *(sheet.field(title, value, 1) for title, value in shown)]


def _conditions(conditions: Sequence[Record]) -> list[str]:
    rows = [
        (
            f"{raw.text(condition, 'type')} ",
            f"{raw.text(condition, 'status')} ",
            f"{sheet.moment(raw.text(condition, 'lastHeartbeatTime'))} ",
            f"{sheet.moment(raw.text(condition, 'lastTransitionTime'))} ",
            f"{raw.text(condition, 'reason')} ",
            raw.text(condition, "message"),
        )
        for condition in conditions
    ]
    return sheet.table("Conditions", _CONDITIONS, rows) if rows else []


def _resources(title: str, resources: Record) -> list[str]:
    if not resources:
        return []
    listed = sorted(resources.items())
    return [
        f"{title}:",
        *(sheet.field(name, amounts.canonical(value), 1) for name, value in listed),
    ]


def _spec(spec: Record) -> list[str]:
    ranges = raw.value(spec, "podCIDRs")
    return [
        *sheet.optional("PodCIDR", raw.text(spec, "podCIDR")),
        *sheet.optional("PodCIDRs", ",".join(ranges) if isinstance(ranges, list) else ""),
        *sheet.optional("ProviderID", raw.text(spec, "providerID")),
    ]


def _use(resources: Record, pods: Sequence[Record] | None, now: datetime) -> list[str]:
    """The pods and what they ask for; without them no sum, which would be a wrong one."""
    if pods is None:
        return [sheet.field("Pods", "not authorized")]
    whole = amounts.amounts(resources)
    rows = [_pod(pod, whole, now) for pod in pods]
    title, *table = sheet.table("Non-terminated Pods", _PODS, rows)
    return [sheet.line(title, f"({len(pods)} in total)"), *table, *_allocated(whole, pods)]


def _pod(pod: Record, whole: Mapping[str, Amount], now: datetime) -> tuple[str, ...]:
    wanted = [amounts.of_pod(pod, part) for part in _PARTS]
    return (
        raw.text(pod, "metadata", "namespace"),
        raw.text(pod, "metadata", "name"),
        "",
        *(_share(amount, whole, name) for name in ("cpu", "memory") for amount in wanted),
        age(pod, now),
    )


def _allocated(whole: Mapping[str, Amount], pods: Sequence[Record]) -> list[str]:
    """What is asked for in all: the standard resources, huge pages, and those of extensions."""
    wanted = [amounts.of_pods(pods, part) for part in _PARTS]
    huge = sorted(name for name in whole if name.startswith(_HUGE_PAGES))
    others = sorted(name for name in whole if name not in (*_STANDARD, *huge, "pods"))
    rows = [(name, *(_share(part, whole, name) for part in wanted)) for name in (*_STANDARD, *huge)]
    rows += [(name, *(str(part.get(name, Amount())) for part in wanted)) for name in others]
    title, *table = sheet.table("Allocated resources", ("Resource", "Requests", "Limits"), rows)
    note = "(Total limits may be over 100 percent, i.e., overcommitted.)"
    return [title, sheet.line(note, level=1), *table]


def _share(wanted: Mapping[str, Amount], whole: Mapping[str, Amount], name: str) -> str:
    """An amount and its share of what there is: `250m (12%)`."""
    amount, total = wanted.get(name, Amount()), whole.get(name, Amount())
    parts = (amount.milli, total.milli) if name == "cpu" else (amount.whole, total.whole)
    percent = int(parts[0] / parts[1] * 100) if parts[1] else 0
    return f"{amount} ({percent}%)"
