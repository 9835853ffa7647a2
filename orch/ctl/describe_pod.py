"""The text of `orchctl describe pod`; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from orch.ctl import sheet
from orch.wire import raw
from orch.wire.table_layout import age
from orch.wire.table_pods import pod_status

Record = Mapping[str, Any]


def lines(pod: Record, now: datetime) -> list[str]:
    """Everything but the events."""
    return [
        *sheet.fields(_head(pod, now)),
        *_containers("Init Containers", pod, "initContainers", "initContainerStatuses"),
        *_containers("Containers", pod, "containers", "containerStatuses"),
        *_conditions(raw.records(pod, "status", "conditions")),
        *_volumes(raw.records(pod, "spec", "volumes")),
        *sheet.fields(_tail(pod)),
    ]


def _head(pod: Record, now: datetime) -> list[tuple[str, sheet.Value]]:
    metadata = raw.mapping(pod, "metadata")
    pairs: list[tuple[str, sheet.Value]] = [
        ("Name", raw.text(metadata, "name")),
        ("Namespace", raw.text(metadata, "namespace")),
        ("Node", _at(raw.text(pod, "spec", "nodeName"), raw.text(pod, "status", "hostIP"))),
        ("Start Time", raw.text(pod, "status", "startTime")),
        ("Age", age(pod, now)),
        ("Labels", sheet.pairs_of(raw.mapping(metadata, "labels"))),
        ("Annotations", sheet.pairs_of(raw.mapping(metadata, "annotations"))),
        ("Status", pod_status(pod)),
    ]
    pairs += [
        (member.capitalize(), raw.text(pod, "status", member))
        for member in ("reason", "message")
        if raw.text(pod, "status", member)
    ]
    if deleted := raw.text(metadata, "deletionTimestamp"):
        pairs.append(("Deletion", f"asked for until {deleted}"))
    addresses = [raw.text(ip, "ip") for ip in raw.records(pod, "status", "podIPs")]
    pairs.append(("IPs", addresses or raw.text(pod, "status", "podIP")))
    return pairs


def _at(node: str, address: str) -> str:
    return f"{node}/{address}" if node and address else node


def _containers(title: str, pod: Record, declared: str, seen: str) -> list[str]:
    containers = raw.records(pod, "spec", declared)
    if not containers:
        return []
    statuses = {raw.text(s, "name"): s for s in raw.records(pod, "status", seen)}
    shown = [f"{title}:"]
    for container in containers:
        name = raw.text(container, "name")
        shown.append(f"  {name}:")
        shown += sheet.fields(_container(container, statuses.get(name, {})), indent=4)
    return shown


def _container(container: Record, status: Record) -> list[tuple[str, sheet.Value]]:
    pairs: list[tuple[str, sheet.Value]] = [
        ("Container ID", raw.text(status, "containerID")),
        ("Image", raw.text(container, "image")),
        ("Image ID", raw.text(status, "imageID")),
        ("Ports", _ports(container)),
    ]
    for member in ("command", "args"):
        words = raw.value(container, member)
        if isinstance(words, list):
            pairs.append((member.capitalize(), " ".join(map(str, words))))
    pairs.append(("State", _state(raw.mapping(status, "state"))))
    if last := raw.mapping(status, "lastState"):
        pairs.append(("Last State", _state(last)))
    pairs += [
        ("Ready", str(raw.value(status, "ready") is True)),
        ("Restart Count", str(raw.number(status, "restartCount"))),
    ]
    for kind in ("limits", "requests"):
        if amounts := raw.mapping(container, "resources", kind):
            pairs.append((kind.capitalize(), sheet.pairs_of(amounts)))
    mounts = [_mount(mount) for mount in raw.records(container, "volumeMounts")]
    return [*pairs, ("Environment", _environment(container)), ("Mounts", mounts)]


def _ports(container: Record) -> list[str]:
    return [
        f"{raw.number(port, 'containerPort')}/{raw.text(port, 'protocol') or 'TCP'}"
        for port in raw.records(container, "ports")
    ]


def _environment(container: Record) -> list[str]:
    return [
        f"{raw.text(variable, 'name')}="
        + ("<from elsewhere>" if "valueFrom" in variable else raw.text(variable, "value"))
        for variable in raw.records(container, "env")
    ]


def _mount(mount: Record) -> str:
    mode = "ro" if raw.value(mount, "readOnly") is True else "rw"
    return f"{raw.text(mount, 'mountPath')} from {raw.text(mount, 'name')} ({mode})"


def _state(state: Record) -> list[str]:
    """The state a container is in, with why and since when."""
    for kind in ("running", "waiting", "terminated"):
        if isinstance(raw.value(state, kind), dict):
            members = sorted(raw.mapping(state, kind).items())
            details = [f"{k}: {v}" for k, v in members if v != "" and k != "containerID"]
            return [kind.capitalize(), *details]
    return []


def _conditions(conditions: Sequence[Record]) -> list[str]:
    columns = ("type", "status", "reason", "message")
    rows = [[raw.text(condition, name) for name in columns] for condition in conditions]
    return sheet.table("Conditions", [name.capitalize() for name in columns], rows)


def _volumes(volumes: Sequence[Record]) -> list[str]:
    pairs: list[tuple[str, sheet.Value]] = []
    for volume in volumes:
        for kind, source in volume.items():
            if isinstance(source, Mapping):
                options = ", ".join(sheet.pairs_of(source))
                pairs.append((raw.text(volume, "name"), f"{kind} {options}".strip()))
    return sheet.titled("Volumes", pairs)


def _tail(pod: Record) -> list[tuple[str, sheet.Value]]:
    tolerations = [_toleration(t) for t in raw.records(pod, "spec", "tolerations")]
    return [
        ("QoS Class", raw.text(pod, "status", "qosClass")),
        ("Restart Policy", raw.text(pod, "spec", "restartPolicy")),
        ("Node-Selectors", sheet.pairs_of(raw.mapping(pod, "spec", "nodeSelector"))),
        ("Tolerations", tolerations),
    ]


def _toleration(toleration: Record) -> str:
    value, effect = raw.text(toleration, "value"), raw.text(toleration, "effect")
    shown = raw.text(toleration, "key") + (f"={value}" if value else "")
    shown += f":{effect}" if effect else ""
    if operator := raw.text(toleration, "operator"):
        shown += f" op={operator}"
    limit_s = raw.value(toleration, "tolerationSeconds")
    return f"{shown} for {limit_s}s" if isinstance(limit_s, int) else shown
