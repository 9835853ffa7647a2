"""The table columns and cells of every kind but Pod, which has its own module.

From the reference system's `pkg/printers/internalversion/printers.go`.
"""

from __future__ import annotations

from datetime import datetime

from orch.wire import raw
from orch.wire.names import LABEL_ROLE, LABEL_ROLE_PREFIX, LABEL_ROLE_PREFIX_UPSTREAM
from orch.wire.quantity import format_milli, to_bytes, to_milli
from orch.wire.tables import pods
from orch.wire.tables.layout import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Cell,
    Column,
    Layout,
    Record,
    age,
    name,
    since,
)
from orch.wire.times import human_age


def layout_of(kind: str) -> Layout:
    """The layout of a kind; name and age for kinds without one."""
    return _LAYOUTS.get(kind, _DEFAULT)


def _default_cells(record: Record, now: datetime) -> list[Cell]:
    return [name(record), age(record, now)]


def _node_cells(record: Record, now: datetime) -> list[Cell]:
    info = raw.mapping(record, "status", "nodeInfo")
    return [
        name(record),
        _node_status(record),
        node_roles(record),
        age(record, now),
        raw.text(info, "kubeletVersion"),
        _node_address(record, "InternalIP"),
        _node_address(record, "ExternalIP"),
        raw.text(info, "osImage") or UNKNOWN,
        raw.text(info, "kernelVersion") or UNKNOWN,
        raw.text(info, "containerRuntimeVersion") or UNKNOWN,
    ]


def _node_status(record: Record) -> str:
    status = "Unknown"
    for condition in raw.records(record, "status", "conditions"):
        if raw.text(condition, "type") == "Ready":
            status = "Ready" if raw.text(condition, "status") == "True" else "NotReady"
    cordoned = raw.value(record, "spec", "unschedulable") is True
    return f"{status},SchedulingDisabled" if cordoned else status


def node_roles(record: Record) -> str:
    """The roles in a node's labels, `<none>` without any."""
    roles = set()
    for key, role in raw.mapping(record, "metadata", "labels").items():
        if key.startswith((LABEL_ROLE_PREFIX, LABEL_ROLE_PREFIX_UPSTREAM)):
            roles.add(key.partition("/")[2])
        elif key == LABEL_ROLE:
            roles.add(str(role))
    return ",".join(sorted(roles - {""})) or NONE


def _node_address(record: Record, kind: str) -> str:
    for address in raw.records(record, "status", "addresses"):
        if raw.text(address, "type") == kind:
            return raw.text(address, "address") or NONE
    return NONE


def _namespace_cells(record: Record, now: datetime) -> list[Cell]:
    return [name(record), raw.text(record, "status", "phase"), age(record, now)]


def _event_cells(record: Record, now: datetime) -> list[Cell]:
    first = raw.text(record, "firstTimestamp") or raw.text(record, "eventTime")
    last = raw.text(record, "lastTimestamp") or first
    count = raw.number(record, "count") or 1
    if raw.mapping(record, "series"):
        last = raw.text(record, "series", "lastObservedTime")
        count = raw.number(record, "series", "count")
    return [
        since(last, now),
        raw.text(record, "type"),
        raw.text(record, "reason"),
        _event_target(record),
        raw.text(record, "involvedObject", "fieldPath"),
        event_source(record),
        raw.text(record, "message").strip(),
        since(first, now),
        count,
        name(record),
    ]


def _event_target(record: Record) -> str:
    kind = raw.text(record, "involvedObject", "kind").lower()
    target = raw.text(record, "involvedObject", "name")
    return f"{kind}/{target}" if target else kind


def event_source(record: Record) -> str:
    """The reporter of an event: `component, host`."""
    component = raw.text(record, "source", "component") or raw.text(record, "reportingComponent")
    host = raw.text(record, "source", "host")
    if not raw.mapping(record, "source"):
        host = raw.text(record, "reportingInstance")
    return ", ".join(part for part in (component, host) if part)


def _lease_cells(record: Record, now: datetime) -> list[Cell]:
    return [name(record), raw.text(record, "spec", "holderIdentity"), age(record, now)]


def _config_map_cells(record: Record, now: datetime) -> list[Cell]:
    count = len(raw.mapping(record, "data")) + len(raw.mapping(record, "binaryData"))
    return [name(record), count, age(record, now)]


def _secret_cells(record: Record, now: datetime) -> list[Cell]:
    count = len(raw.mapping(record, "data"))
    return [name(record), raw.text(record, "type"), count, age(record, now)]


def _quota_cells(record: Record, now: datetime) -> list[Cell]:
    used = raw.mapping(record, "status", "used")
    amounts = sorted(raw.mapping(record, "status", "hard").items())
    shown = [(key, f"{key}: {used.get(key, 0)}/{hard}") for key, hard in amounts]
    requests = ", ".join(text for key, text in shown if not key.startswith("limits."))
    limits = ", ".join(text for key, text in shown if key.startswith("limits."))
    return [name(record), requests, limits, age(record, now)]


def _pod_template_cells(record: Record, now: datetime) -> list[Cell]:
    containers = raw.records(record, "template", "spec", "containers")
    shown = [",".join(raw.text(one, part) for one in containers) for part in ("name", "image")]
    labels = raw.mapping(record, "template", "metadata", "labels")
    return [name(record), *shown, ",".join(f"{k}={v}" for k, v in sorted(labels.items())) or NONE]


def _priority_class_cells(record: Record, now: datetime) -> list[Cell]:
    return [
        name(record),
        raw.number(record, "value"),
        raw.value(record, "globalDefault") is True,
        age(record, now),
        raw.text(record, "preemptionPolicy"),
    ]


def _runtime_class_cells(record: Record, now: datetime) -> list[Cell]:
    return [name(record), raw.text(record, "handler"), age(record, now)]


def _webhooks_cells(record: Record, now: datetime) -> list[Cell]:
    return [name(record), len(raw.records(record, "webhooks")), age(record, now)]


def _signing_request_cells(record: Record, now: datetime) -> list[Cell]:
    seconds = raw.number(record, "spec", "expirationSeconds")
    kinds = [raw.text(one, "type") for one in raw.records(record, "status", "conditions")]
    state = ",".join(kind for kind in _REQUEST_STATES if kind in kinds) or "Pending"
    if raw.text(record, "status", "certificate"):
        state += ",Issued"
    return [
        name(record),
        age(record, now),
        raw.text(record, "spec", "signerName"),
        raw.text(record, "spec", "username"),
        human_age(seconds) if seconds else NONE,
        state,
    ]


_REQUEST_STATES = ("Approved", "Denied", "Failed")


def _node_usage_cells(record: Record, now: datetime) -> list[Cell]:
    amounts = raw.mapping(record, "usage")
    shown = [raw.text(amounts, "cpu"), raw.text(amounts, "memory")]
    return [name(record), *shown, raw.text(record, "window")]


def _pod_usage_cells(record: Record, now: datetime) -> list[Cell]:
    containers = raw.records(record, "containers")
    milli = sum(to_milli(raw.text(c, "usage", "cpu") or 0) for c in containers)
    memory = sum(to_bytes(raw.text(c, "usage", "memory") or 0) for c in containers)
    shown = [format_milli(milli), f"{memory // 1024}Ki"]
    return [name(record), *shown, raw.text(record, "window")]


def _role_cells(record: Record, now: datetime) -> list[Cell]:
    return [name(record), raw.text(record, "metadata", "creationTimestamp") or UNKNOWN]


def _binding_cells(record: Record, now: datetime) -> list[Cell]:
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in raw.records(record, "subjects"):
        kind, namespace = raw.text(subject, "kind"), raw.text(subject, "namespace")
        who = raw.text(subject, "name")
        shown = f"{namespace}/{who}" if kind == "ServiceAccount" else who
        subjects.setdefault(kind, []).append(shown)
    role = raw.mapping(record, "roleRef")
    return [
        name(record),
        f"{raw.text(role, 'kind')}/{raw.text(role, 'name')}",
        age(record, now),
        *(", ".join(subjects[kind]) for kind in ("User", "Group", "ServiceAccount")),
    ]


_DEFAULT = Layout((NAME, AGE), _default_cells)
_ROLE = Layout((NAME, Column("Created At", "When the object was created.")), _role_cells)
_BINDING = Layout(
    (
        NAME,
        Column("Role", "The role this binding grants."),
        AGE,
        Column("Users", "The users it is granted to.", 1),
        Column("Groups", "The groups it is granted to.", 1),
        Column("ServiceAccounts", "The service accounts it is granted to.", 1),
    ),
    _binding_cells,
)
_USAGE = (
    NAME,
    Column("CPU", "Cores in use."),
    Column("Memory", "Memory in use that cannot be reclaimed at once."),
    Column("Window", "The time the CPU is an average over."),
)
_WEBHOOKS = Layout(
    (NAME, Column("Webhooks", "How many it has.", type="integer"), AGE), _webhooks_cells
)
_LAYOUTS = {
    "Pod": pods.LAYOUT,
    "Node": Layout(
        (
            NAME,
            Column("Status", "The status of the node"),
            Column("Roles", "The roles of the node"),
            AGE,
            Column("Version", "The version of the node agent."),
            Column("Internal-IP", "The address inside the cluster.", 1),
            Column("External-IP", "The address outside the cluster.", 1),
            Column("OS-Image", "The operating system, as it names itself.", 1),
            Column("Kernel-Version", "The version of the kernel.", 1),
            Column("Container-Runtime", "The container runtime and its version.", 1),
        ),
        _node_cells,
    ),
    "Namespace": Layout(
        (NAME, Column("Status", "The status of the namespace"), AGE), _namespace_cells
    ),
    "Event": Layout(
        (
            Column("Last Seen", "Time since the event was last seen."),
            Column("Type", "Normal or Warning."),
            Column("Reason", "Why the event came about, in one word."),
            Column("Object", "The object the event is about."),
            Column("Subobject", "The part of the object the event is about.", 1),
            Column("Source", "The component that reports the event.", 1),
            Column("Message", "What happened."),
            Column("First Seen", "Time since the event was first seen.", 1),
            Column("Count", "How many times it was seen.", 1),
            Column("Name", NAME.description, 1, "name"),
        ),
        _event_cells,
    ),
    "Lease": Layout((NAME, Column("Holder", "Who holds the lease."), AGE), _lease_cells),
    "ConfigMap": Layout((NAME, Column("Data", "How many values it has."), AGE), _config_map_cells),
    "Secret": Layout(
        (NAME, Column("Type", "What it is for."), Column("Data", "How many values it has."), AGE),
        _secret_cells,
    ),
    "ResourceQuota": Layout(
        (
            NAME,
            Column("Request", "What is in use, and may be: objects, bytes, requests of pods."),
            Column("Limit", "What is in use, and may be: limits of pods."),
            AGE,
        ),
        _quota_cells,
    ),
    "PodTemplate": Layout(
        (
            NAME,
            Column("Containers", "The names of its pods' containers."),
            Column("Images", "Their images."),
            Column("Pod Labels", "The labels of its pods."),
        ),
        _pod_template_cells,
    ),
    "PriorityClass": Layout(
        (
            NAME,
            Column("Value", "The priority of its pods.", type="integer"),
            Column("Global-Default", "Whether pods get it that name no class.", type="boolean"),
            AGE,
            Column("PreemptionPolicy", "Whether its pods may displace others."),
        ),
        _priority_class_cells,
    ),
    "RuntimeClass": Layout(
        (NAME, Column("Handler", "Its name in the configuration of runtimes."), AGE),
        _runtime_class_cells,
    ),
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "CertificateSigningRequest": Layout(
        (
            NAME,
            AGE,
            Column("SignerName", "Who is asked for the certificate."),
            Column("Requestor", "Who asks."),
            Column("RequestedDuration", "How long it is to be valid."),
            Column("Condition", "What became of the request."),
        ),
        _signing_request_cells,
    ),
    "NodeMetrics": Layout(_USAGE, _node_usage_cells),
    "PodMetrics": Layout(_USAGE, _pod_usage_cells),
    "CustomResourceDefinition": _ROLE,
    "LimitRange": _ROLE,
    "Role": _ROLE,
    "ClusterRole": _ROLE,
    "RoleBinding": _BINDING,
    "ClusterRoleBinding": _BINDING,
}
