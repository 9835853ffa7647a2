"""The description of a pod; `containers` describes its containers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orch.ctl.describe import containers, generic
from orch.ctl.describe.tab_writer import TabWriter, local_time
from orch.wire import raw
from orch.wire.tables.layout import NONE, since

Record = Mapping[str, Any]
_ENDED = ("Succeeded", "Failed")
_CONTAINERS = (
    ("Init Containers", "initContainers", "initContainerStatuses"),
    ("Containers", "containers", "containerStatuses"),
    ("Ephemeral Containers", "ephemeralContainers", "ephemeralContainerStatuses"),
)


def write(writer: TabWriter, pod: Record, now: datetime) -> None:
    """Everything but the events."""
    spec = raw.mapping(pod, "spec")
    _write_head(writer, pod)
    _write_status(writer, pod, now)
    _write_addresses(writer, raw.mapping(pod, "status"))
    _write_owner(writer, pod)
    for title, declared, seen in _CONTAINERS:
        containers.write(writer, title, pod, declared, seen)
    _write_conditions(writer, pod)
    _write_volumes(writer, raw.records(spec, "volumes"))
    writer.field("QoS Class", raw.text(pod, "status", "qosClass"))
    writer.pairs("Node-Selectors", raw.mapping(spec, "nodeSelector"))
    tolerations = sorted(raw.records(spec, "tolerations"), key=lambda t: raw.text(t, "key"))
    writer.listed("Tolerations", [_toleration(toleration) for toleration in tolerations])
    if spread := spec.get("topologySpreadConstraints"):
        generic.write_members(writer, {"topologySpreadConstraints": spread}, 0)


def _write_head(writer: TabWriter, pod: Record) -> None:
    spec = raw.mapping(pod, "spec")
    node, host = raw.text(spec, "nodeName"), raw.text(pod, "status", "hostIP")
    started = raw.text(pod, "status", "startTime")
    priority = raw.value(spec, "priority")
    writer.field("Name", raw.text(pod, "metadata", "name"))
    writer.field("Namespace", raw.text(pod, "metadata", "namespace"))
    writer.optional("Priority", "" if priority is None else str(priority))
    writer.optional("Priority Class Name", raw.text(spec, "priorityClassName"))
    writer.optional("Runtime Class Name", raw.text(spec, "runtimeClassName"))
    writer.optional("Service Account", raw.text(spec, "serviceAccountName"))
    writer.field("Node", f"{node}/{host}" if node else NONE)
    writer.optional("Start Time", local_time(started) if started else "")
    writer.labels(pod)


def _write_status(writer: TabWriter, pod: Record, now: datetime) -> None:
    status = raw.mapping(pod, "status")
    phase = raw.text(status, "phase")
    deleted = raw.text(pod, "metadata", "deletionTimestamp")
    if deleted and phase not in _ENDED:
        grace_s = raw.number(pod, "metadata", "deletionGracePeriodSeconds")
        writer.field("Status", f"Terminating (lasts {since(deleted, now)})")
        writer.field("Termination Grace Period", f"{grace_s}s")
    else:
        writer.field("Status", phase)
    profile = raw.mapping(pod, "spec", "securityContext", "seccompProfile")
    writer.optional("Reason", raw.text(status, "reason"))
    writer.optional("Message", raw.text(status, "message"))
    writer.optional("SeccompProfile", raw.text(profile, "type"))
    writer.optional("LocalhostProfile", raw.text(profile, "localhostProfile"))


def _write_addresses(writer: TabWriter, status: Record) -> None:
    addresses = [raw.text(ip, "ip") for ip in raw.records(status, "podIPs")]
    writer.field("IP", raw.text(status, "podIP"))
    if not addresses:
        writer.field("IPs", NONE)
        return
    writer.line("IPs:")
    for address in addresses:
        writer.field("IP", address, 1)


def _write_owner(writer: TabWriter, pod: Record) -> None:
    owners = raw.records(pod, "metadata", "ownerReferences")
    controllers = [owner for owner in owners if owner.get("controller") is True]
    for owner in controllers[:1]:
        writer.field("Controlled By", f"{raw.text(owner, 'kind')}/{raw.text(owner, 'name')}")
    writer.optional("NominatedNodeName", raw.text(pod, "status", "nominatedNodeName"))
    resources = raw.mapping(pod, "spec", "resources")
    if resources:
        writer.line("Resources:")
        containers.write_resources(writer, resources, 1)


def _write_conditions(writer: TabWriter, pod: Record) -> None:
    conditions = raw.records(pod, "status", "conditions")
    seen = [(raw.text(c, "type"), raw.text(c, "status")) for c in conditions]
    known = dict(reversed(seen))
    gates = [raw.text(g, "conditionType") for g in raw.records(pod, "spec", "readinessGates")]
    wanted = [(gate, known.get(gate, NONE)) for gate in gates]
    for title, rows in (("Readiness Gates", wanted), ("Conditions", seen)):
        if rows:
            writer.line(f"{title}:")
            writer.line("Type", "Status", level=1)
            for kind, status in rows:
                writer.line(f"{kind} ", status, level=1)


def _write_volumes(writer: TabWriter, volumes: Sequence[Record]) -> None:
    """The volumes of any type, each with its own fields."""
    writer.line("Volumes:", *(() if volumes else (NONE,)))
    for volume in volumes:
        writer.line(f"{raw.text(volume, 'name')}:", level=1)
        generic.write_members(writer, {k: v for k, v in volume.items() if k != "name"}, 2)


def _toleration(toleration: Record) -> str:
    value, effect = raw.text(toleration, "value"), raw.text(toleration, "effect")
    shown = raw.text(toleration, "key") + (f"={value}" if value else "")
    shown += f":{effect}" if effect else ""
    if raw.text(toleration, "operator") == "Exists" and not value:
        shown += " op=Exists" if shown else "op=Exists"
    limit_s = raw.value(toleration, "tolerationSeconds")
    return f"{shown} for {limit_s}s" if isinstance(limit_s, int) else shown
