"""The description of a node, from the node, its lease and its pods; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orch.ctl.describe import amounts
from orch.ctl.describe.amounts import Amounts
from orch.ctl.describe.tab_writer import TabWriter, local_time
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
    "Kubelet Version": "kubeletVersion",
}  # fmt: skip
_PODS = (
    "Namespace", "Name", "", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits",
    "Age",
)  # fmt: skip
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES = "hugepages-"


def write(
    writer: TabWriter,
    node: Record,
    lease: Record | str,
    pods: Sequence[Record] | None,
    now: datetime,
) -> None:
    """Everything but the events.

    `lease` is the text of the error when it cannot be read; `pods` is None when they may not be
    listed.
    """
    status = raw.mapping(node, "status")
    capacity, allocatable = (raw.mapping(status, name) for name in ("capacity", "allocatable"))
    _write_head(writer, node)
    _write_lease(writer, lease)
    _write_conditions(writer, raw.records(status, "conditions"))
    writer.line("Addresses:")
    for address in raw.records(status, "addresses"):
        writer.field(raw.text(address, "type"), raw.text(address, "address"), 1)
    _write_resources(writer, "Capacity", capacity)
    _write_resources(writer, "Allocatable", allocatable)
    writer.line("System Info:")
    for title, name in _INFO.items():
        writer.field(title, raw.text(status, "nodeInfo", name), 1)
    _write_spec(writer, raw.mapping(node, "spec"))
    _write_pods(writer, allocatable or capacity, pods, now)


def _write_head(writer: TabWriter, node: Record) -> None:
    spec = raw.mapping(node, "spec")
    taints = sorted(
        raw.records(spec, "taints"), key=lambda t: f"{raw.text(t, 'effect')},{raw.text(t, 'key')}"
    )
    writer.field("Name", raw.text(node, "metadata", "name"))
    writer.field("Roles", node_roles(node))
    writer.labels(node)
    created = raw.text(node, "metadata", "creationTimestamp")
    writer.field("CreationTimestamp", local_time(created))
    writer.listed("Taints", [_taint(taint) for taint in taints])
    writer.field("Unschedulable", str(raw.value(spec, "unschedulable") is True).lower())


def _taint(taint: Record) -> str:
    value, effect = raw.text(taint, "value"), raw.text(taint, "effect")
    shown = raw.text(taint, "key") + (f"={value}" if value else "")
    return f"{shown}:{effect}" if effect or value else shown


def _write_lease(writer: TabWriter, lease: Record | str) -> None:
    if isinstance(lease, str):
        writer.field("Lease", f"Failed to get lease: {lease}")
        return
    writer.line("Lease:")
    spec = raw.mapping(lease, "spec")
    writer.field("HolderIdentity", raw.text(spec, "holderIdentity") or _UNSET, 1)
    for title, name in (("AcquireTime", "acquireTime"), ("RenewTime", "renewTime")):
        moment = raw.text(spec, name)
        writer.field(title, local_time(moment) if moment else _UNSET, 1)


def _write_conditions(writer: TabWriter, conditions: Sequence[Record]) -> None:
    if not conditions:
        return
    writer.line("Conditions:")
    writer.header(_CONDITIONS)
    for condition in conditions:
        times = (raw.text(condition, f"last{name}Time") for name in ("Heartbeat", "Transition"))
        writer.line(
            f"{raw.text(condition, 'type')} ",
            f"{raw.text(condition, 'status')} ",
            *(f"{local_time(time)} " for time in times),
            f"{raw.text(condition, 'reason')} ",
            raw.text(condition, "message"),
            level=1,
        )


def _write_resources(writer: TabWriter, title: str, resources: Record) -> None:
    if resources:
        writer.line(f"{title}:")
    for name, value in sorted(resources.items()):
        writer.field(name, amounts.canonical(value), 1)


def _write_spec(writer: TabWriter, spec: Record) -> None:
    ranges = raw.value(spec, "podCIDRs")
    writer.optional("PodCIDR", raw.text(spec, "podCIDR"))
    writer.optional("PodCIDRs", ",".join(ranges) if isinstance(ranges, list) else "")
    writer.optional("ProviderID", raw.text(spec, "providerID"))


def _write_pods(
    writer: TabWriter, resources: Record, pods: Sequence[Record] | None, now: datetime
) -> None:
    """The pods and what they request; without them no sum, as it would be wrong."""
    if pods is None:
        writer.field("Pods", "not authorized")
        return
    total = amounts.read(resources)
    writer.line("Non-terminated Pods:", f"({len(pods)} in total)")
    writer.header(_PODS)
    for pod in pods:
        wanted = [amounts.of_pod(pod, part) for part in amounts.PARTS]
        shares = (_share(part, total, name) for name in ("cpu", "memory") for part in wanted)
        namespace, name = (raw.text(pod, "metadata", key) for key in ("namespace", "name"))
        writer.line(namespace, name, "", *shares, age(pod, now), level=1)
    _write_allocated(writer, total, [amounts.of_pods(pods, part) for part in amounts.PARTS])


def _write_allocated(writer: TabWriter, total: Amounts, wanted: Sequence[Amounts]) -> None:
    """The sum of what pods request: the standard resources, huge pages, and extended ones."""
    writer.line("Allocated resources:")
    writer.line("(Total limits may be over 100 percent, i.e., overcommitted.)", level=1)
    writer.header(("Resource", "Requests", "Limits"))
    huge = sorted(name for name in total if name.startswith(_HUGE_PAGES))
    for name in (*_STANDARD, *huge):
        writer.line(name, *(_share(part, total, name) for part in wanted), level=1)
    for name in sorted(total.keys() - {*_STANDARD, *huge, "pods"}):
        writer.line(name, *(amounts.text(name, part[name]) for part in wanted), level=1)


def _share(wanted: Amounts, total: Amounts, name: str) -> str:
    """An amount and its share of the total: `250m (12%)`."""
    percent = int(wanted[name] / total[name] * 100) if total[name] else 0
    return f"{amounts.text(name, wanted[name])} ({percent}%)"
