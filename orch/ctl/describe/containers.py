"""The description of a pod's containers: image, state, resources, probes, environment; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orch.ctl.describe import amounts, generic
from orch.ctl.describe.tab_writer import TabWriter, local_time
from orch.wire import raw
from orch.wire.tables.layout import NONE

Record = Mapping[str, Any]
_FROM_POD = {"metadata.name": "name", "metadata.namespace": "namespace"}


def write(writer: TabWriter, title: str, pod: Record, declared: str, seen: str) -> None:
    """One of a pod's lists of containers, unless it is empty; `seen` is the list of statuses."""
    listed = raw.records(pod, "spec", declared)
    if listed:
        writer.line(f"{title}:")
    statuses = {raw.text(s, "name"): s for s in raw.records(pod, "status", seen)}
    for container in listed:
        name = raw.text(container, "name")
        writer.line(f"{name}:", level=1)
        _write_container(writer, pod, container, statuses.get(name))


def _write_container(
    writer: TabWriter, pod: Record, container: Record, status: Record | None
) -> None:
    if status is not None:
        writer.field("Container ID", raw.text(status, "containerID"), 2)
    writer.field("Image", raw.text(container, "image"), 2)
    if status is not None:
        writer.field("Image ID", raw.text(status, "imageID"), 2)
    _write_ports(writer, raw.records(container, "ports"))
    profile = raw.mapping(container, "securityContext", "seccompProfile")
    writer.optional("SeccompProfile", raw.text(profile, "type"), 2)
    if raw.text(profile, "type") == "Localhost":
        writer.field("LocalhostProfile", raw.text(profile, "localhostProfile"), 3)
    for title in ("Command", "Args"):
        _write_words(writer, title, raw.value(container, title.lower()))
    if status is not None:
        _write_status(writer, status)
    write_resources(writer, raw.mapping(container, "resources"), 2)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if name in container:
            generic.write_members(writer, {name: container[name]}, 2)
    _write_environment(writer, pod, container)
    _write_mounts(writer, raw.records(container, "volumeMounts"))


def _write_ports(writer: TabWriter, ports: Sequence[Record]) -> None:
    plural = "s" if len(ports) > 1 else ""
    for title, member in (("Port", "containerPort"), ("Host Port", "hostPort")):
        shown = [f"{raw.number(port, member)}/{raw.text(port, 'protocol')}" for port in ports]
        writer.field(f"{title}{plural}", ", ".join(shown) or NONE, 2)


def _write_words(writer: TabWriter, title: str, words: Any) -> None:
    if isinstance(words, list) and words:
        writer.line(f"{title}:", level=2)
        for text in "\n".join(map(str, words)).split("\n"):
            writer.line(text, level=3)


def _write_status(writer: TabWriter, status: Record) -> None:
    last = raw.mapping(status, "lastState")
    _write_state(writer, "State", raw.mapping(status, "state"))
    if "terminated" in last:
        _write_state(writer, "Last State", last)
    writer.field("Ready", str(raw.value(status, "ready") is True), 2)
    writer.field("Restart Count", str(raw.number(status, "restartCount")), 2)


def _write_state(writer: TabWriter, title: str, state: Record) -> None:
    """The state of a container with its reason and times; without any it is waiting."""
    kind = next((name for name in ("running", "waiting", "terminated") if name in state), "waiting")
    details = raw.mapping(state, kind)
    writer.field(title, kind.capitalize(), 2)
    if kind == "running":
        writer.field("Started", local_time(raw.text(details, "startedAt")), 3)
        return
    writer.optional("Reason", raw.text(details, "reason"), 3)
    if kind == "terminated":
        signal = raw.number(details, "signal")
        writer.optional("Message", raw.text(details, "message"), 3)
        writer.field("Exit Code", str(raw.number(details, "exitCode")), 3)
        writer.optional("Signal", str(signal) if signal > 0 else "", 3)
        writer.field("Started", local_time(raw.text(details, "startedAt")), 3)
        writer.field("Finished", local_time(raw.text(details, "finishedAt")), 3)


def write_resources(writer: TabWriter, record: Record, level: int) -> None:
    """Limits and requests, each under its title."""
    for part in ("limits", "requests"):
        wanted = sorted(raw.mapping(record, part).items())
        if wanted:
            writer.line(f"{part.capitalize()}:", level=level)
        for name, value in wanted:
            writer.field(name, amounts.canonical(value), level + 1)


def _write_environment(writer: TabWriter, pod: Record, container: Record) -> None:
    sources = raw.records(container, "envFrom")
    if sources:
        writer.line("Environment Variables from:", level=2)
    for source in sources:
        kind = "Secret" if "secretRef" in source else "ConfigMap"
        reference = raw.mapping(source, "secretRef") or raw.mapping(source, "configMapRef")
        prefix = raw.text(source, "prefix")
        shown = f"{kind} with prefix '{prefix}'" if prefix else kind
        writer.line(raw.text(reference, "name"), shown, _optional(reference), level=3)
    variables = raw.records(container, "env")
    writer.line("Environment:", *(() if variables else (NONE,)), level=2)
    for variable in variables:
        _write_variable(writer, pod, variable)


def _optional(reference: Record) -> str:
    return f"Optional: {str(raw.value(reference, 'optional') is True).lower()}"


def _write_variable(writer: TabWriter, pod: Record, variable: Record) -> None:
    """The value, or where it comes from and, where the pod alone decides, what it is."""
    name, origin = raw.text(variable, "name"), raw.mapping(variable, "valueFrom")
    if not origin:
        first, *more = raw.text(variable, "value").split("\n")
        writer.field(name, first, 3)
        for text in more:
            writer.line("", text, level=3)
    elif field := raw.mapping(origin, "fieldRef"):
        path = raw.text(field, "fieldPath")
        value = raw.text(pod, "metadata", _FROM_POD[path]) if path in _FROM_POD else ""
        writer.field(name, f"{value} ({raw.text(field, 'apiVersion')}:{path})", 3)
    elif field := raw.mapping(origin, "resourceFieldRef"):
        writer.field(name, f"({raw.text(field, 'resource')})", 3)
    else:
        for member, place in (("secretKeyRef", "in secret"), ("configMapKeyRef", "of config map")):
            if reference := raw.mapping(origin, member):
                key, owner = raw.text(reference, "key"), raw.text(reference, "name")
                value = f"<set to the key '{key}' {place} '{owner}'>"
                writer.line(f"{name}:", value, _optional(reference), level=3)


def _write_mounts(writer: TabWriter, mounts: Sequence[Record]) -> None:
    writer.line("Mounts:", *(() if mounts else (NONE,)), level=2)
    for mount in sorted(mounts, key=lambda mount: raw.text(mount, "mountPath")):
        flags = "ro" if raw.value(mount, "readOnly") is True else "rw"
        if path := raw.text(mount, "subPath"):
            flags += f",path={json.dumps(path, ensure_ascii=False)}"
        place = f"{raw.text(mount, 'mountPath')} from {raw.text(mount, 'name')}"
        writer.line(f"{place} ({flags})", level=3)
