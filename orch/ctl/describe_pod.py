"""The text of `orchctl describe pod`; pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from orch.ctl import describe_containers, describe_volumes, sheet
from orch.wire import raw
from orch.wire.tables.layout import NONE, since

Record = Mapping[str, Any]
_ENDED = ("Succeeded", "Failed")


def lines(pod: Record, now: datetime) -> list[str]:
    """Everything but the events."""
    return [
        *_head(pod),
        *_status(pod, now),
        *_addresses(raw.mapping(pod, "status")),
        *_belonging(pod),
        *_containers(pod),
        *_conditions(pod),
        *describe_volumes.lines(raw.records(pod, "spec", "volumes")),
        sheet.field("QoS Class", raw.text(pod, "status", "qosClass")),
        *sheet.pairs("Node-Selectors", raw.mapping(pod, "spec", "nodeSelector")),
        *_tolerations(raw.records(pod, "spec", "tolerations")),
        *_spread(raw.records(pod, "spec", "topologySpreadConstraints")),
    ]


def _head(pod: Record) -> list[str]:
    spec = raw.mapping(pod, "spec")
    node, host = raw.text(spec, "nodeName"), raw.text(pod, "status", "hostIP")
    started = raw.text(pod, "status", "startTime")
    priority = raw.value(spec, "priority")
    return [
        sheet.field("Name", raw.text(pod, "metadata", "name")),
        sheet.field("Namespace", raw.text(pod, "metadata", "namespace")),
        *sheet.optional("Priority", "" if priority is None else str(priority)),
        *sheet.optional("Priority Class Name", raw.text(spec, "priorityClassName")),
        *sheet.optional("Runtime Class Name", raw.text(spec, "runtimeClassName")),
        *sheet.optional("Service Account", raw.text(spec, "serviceAccountName")),
        sheet.field("Node", f"{node}/{host}" if node else NONE),
        *sheet.optional("Start Time", sheet.moment(started) if started else ""),
        *sheet.marks(pod),
    ]


def _status(pod: Record, now: datetime) -> list[str]:
    status = raw.mapping(pod, "status")
    deleted = raw.text(pod, "metadata", "deletionTimestamp")
    phase = [sheet.field("Status", raw.text(status, "phase"))]
    if deleted and raw.text(status, "phase") not in _ENDED:
        grace_s = raw.number(pod, "metadata", "deletionGracePeriodSeconds")
        phase = [
            sheet.field("Status", f"Terminating (lasts {since(deleted, now)})"),
            sheet.field("Termination Grace Period", f"{grace_s}s"),
        ]
    profile = raw.mapping(pod, "spec", "securityContext", "seccompProfile")
    return [
        *phase,
        *sheet.optional("Reason", raw.text(status, "reason")),
        *sheet.optional("Message", raw.text(status, "message")),
        *sheet.optional("SeccompProfile", raw.text(profile, "type")),
        *sheet.optional("LocalhostProfile", raw.text(profile, "localhostProfile")),
    ]


def _addresses(status: Record) -> list[str]:
    addresses = [raw.text(ip, "ip") for ip in raw.records(status, "podIPs")]
    listed = [sheet.field("IP", address, 1) for address in addresses]
    return [
        sheet.field("IP", raw.text(status, "podIP")),
        *(["IPs:", *listed] if listed else [sheet.field("IPs", NONE)]),
    ]


def _belonging(pod: Record) -> list[str]:
    owners = raw.records(pod, "metadata", "ownerReferences")
    controllers = [
        f"{raw.text(owner, 'kind')}/{raw.text(owner, 'name')}"
        for owner in owners
        if raw.value(owner, "controller") is True
    ]
    resources = raw.mapping(pod, "spec", "resources")
    return [
        *sheet.optional("Controlled By", controllers[0] if controllers else ""),
        *sheet.optional("NominatedNodeName", raw.text(pod, "status", "nominatedNodeName")),
        *(["Resources:", *describe_containers.resources(resources, 1)] if resources else []),
    ]


_CONTAINERS = (
    ("Init Containers", "initContainers", "initContainerStatuses"),
    ("Containers", "containers", "containerStatuses"),
    ("Ephemeral Containers", "ephemeralContainers", "ephemeralContainerStatuses"),
)


def _containers(pod: Record) -> list[str]:
    return [
        line
        for title, declared, seen in _CONTAINERS
        if raw.records(pod, "spec", declared)
        for line in describe_containers.lines(title, pod, declared, seen)
    ]


def _conditions(pod: Record) -> list[str]:
    conditions = raw.records(pod, "status", "conditions")
    seen = [(raw.text(c, "type"), raw.text(c, "status")) for c in conditions]
    known = dict(reversed(seen))
    gates = [raw.text(g, "conditionType") for g in raw.records(pod, "spec", "readinessGates")]
    asked = [(gate, known.get(gate, NONE)) for gate in gates]
    lines = []
    for title, rows in (("Readiness Gates", asked), ("Conditions", seen)):
        if rows:
            listed = [sheet.line(f"{kind} ", status, level=1) for kind, status in rows]
            lines += [f"{title}:", sheet.line("Type", "Status", level=1), *listed]
    return lines


def _tolerations(tolerations: list[Record]) -> list[str]:
    ordered = sorted(tolerations, key=lambda toleration: raw.text(toleration, "key"))
    return sheet.listed("Tolerations", [_toleration(toleration) for toleration in ordered])


def _toleration(toleration: Record) -> str:
    value, effect = raw.text(toleration, "value"), raw.text(toleration, "effect")
    shown = raw.text(toleration, "key") + (f"={value}" if value else "")
    shown += f":{effect}" if effect else ""
    if raw.text(toleration, "operator") == "Exists" and not value:
        shown += " op=Exists" if shown else "op=Exists"
    limit_s = raw.value(toleration, "tolerationSeconds")
    return f"{shown} for {limit_s}s" if isinstance(limit_s, int) else shown


def _spread(constraints: list[Record]) -> list[str]:
    ordered = sorted(constraints, key=lambda constraint: raw.text(constraint, "topologyKey"))
    texts = [
        f"{raw.text(c, 'topologyKey')}:{raw.text(c, 'whenUnsatisfiable')}"
        f" when max skew {raw.number(c, 'maxSkew')} is exceeded{_selected(c)}"
        for c in ordered
    ]
    return sheet.listed("Topology Spread Constraints", texts) if texts else []


def _selected(constraint: Record) -> str:
    """The pods a constraint counts; "" when it does not say."""
    if "labelSelector" not in constraint:
        return ""
    selector = raw.mapping(constraint, "labelSelector")
    parts = [(k, f"{k}={v}") for k, v in raw.mapping(selector, "matchLabels").items()]
    expressions = raw.records(selector, "matchExpressions")
    parts += [(raw.text(one, "key"), _requirement(one)) for one in expressions]
    return f" for selector {','.join(text for _, text in sorted(parts)) or NONE}"


def _requirement(requirement: Record) -> str:
    key, values = raw.text(requirement, "key"), raw.value(requirement, "values") or []
    match raw.text(requirement, "operator"):
        case "Exists":
            return key
        case "DoesNotExist":
            return f"!{key}"
        case operator:
            word = "notin" if operator == "NotIn" else "in"
            return f"{key} {word} ({','.join(sorted(map(str, values)))})"
