"""The containers of a pod in the text of `orchctl describe`; pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orch.ctl import amounts, describe_environment, describe_probe, sheet
from orch.wire import raw
from orch.wire.tables.layout import NONE

Record = Mapping[str, Any]
_PROBES = ("liveness", "readiness", "startup")


def lines(title: str, pod: Record, declared: str, seen: str) -> list[str]:
    """The containers of one of a pod's lists; `seen` is the list of what was seen of them."""
    statuses = {raw.text(s, "name"): s for s in raw.records(pod, "status", seen)}
    shown = [f"{title}:"]
    for container in raw.records(pod, "spec", declared):
        name = raw.text(container, "name")
        shown += [sheet.line(f"{name}:", level=1), *_container(pod, container, statuses.get(name))]
    return shown


def _container(pod: Record, container: Record, status: Record | None) -> list[str]:
    return [
        *_image(container, status),
        *_ports(raw.records(container, "ports")),
        *_seccomp(raw.mapping(container, "securityContext", "seccompProfile")),
        *_words("Command", raw.value(container, "command")),
        *_words("Args", raw.value(container, "args")),
        *(_status(status) if status is not None else []),
        *resources(raw.mapping(container, "resources"), 2),
        *(
            sheet.field(probe.capitalize(), describe_probe.text(container[f"{probe}Probe"]), 2)
            for probe in _PROBES
            if isinstance(container.get(f"{probe}Probe"), Mapping)
        ),
        *describe_environment.lines(pod, container),
        *_mounts(container),
    ]


def _image(container: Record, status: Record | None) -> list[str]:
    image = sheet.field("Image", raw.text(container, "image"), 2)
    if status is None:
        return [image]
    return [
        sheet.field("Container ID", raw.text(status, "containerID"), 2),
        image,
        sheet.field("Image ID", raw.text(status, "imageID"), 2),
    ]


def _ports(ports: Sequence[Record]) -> list[str]:
    plural = "s" if len(ports) > 1 else ""
    lines = []
    for title, member in (("Port", "containerPort"), ("Host Port", "hostPort")):
        shown = [f"{raw.number(port, member)}/{raw.text(port, 'protocol')}" for port in ports]
        lines.append(sheet.field(f"{title}{plural}", ", ".join(shown) or NONE, 2))
    return lines


def _seccomp(profile: Record) -> list[str]:
    kind = raw.text(profile, "type")
    lines = sheet.optional("SeccompProfile", kind, 2)
    if kind == "Localhost":
        lines.append(sheet.field("LocalhostProfile", raw.text(profile, "localhostProfile"), 3))
    return lines


def _words(title: str, words: Any) -> list[str]:
    if not isinstance(words, list) or not words:
        return []
    texts = [text for word in words for text in str(word).split("\n")]
    return [sheet.line(f"{title}:", level=2), *(sheet.line(text, level=3) for text in texts)]


def _status(status: Record) -> list[str]:
    last = raw.mapping(status, "lastState")
    return [
        *_state("State", raw.mapping(status, "state")),
        *(_state("Last State", last) if "terminated" in last else []),
        sheet.field("Ready", str(raw.value(status, "ready") is True), 2),
        sheet.field("Restart Count", str(raw.number(status, "restartCount")), 2),
    ]


def _state(title: str, state: Record) -> list[str]:
    """The state a container is in, with why and since when; without any it waits."""
    for kind, details in (("running", _running), ("waiting", _waiting), ("terminated", _ended)):
        if isinstance(state.get(kind), Mapping):
            return [sheet.field(title, kind.capitalize(), 2), *details(state[kind])]
    return [sheet.field(title, "Waiting", 2)]


def _running(state: Record) -> list[str]:
    return [sheet.field("Started", sheet.moment(raw.text(state, "startedAt")), 3)]


def _waiting(state: Record) -> list[str]:
    return sheet.optional("Reason", raw.text(state, "reason"), 3)


def _ended(state: Record) -> list[str]:
    signal = raw.number(state, "signal")
    return [
        *sheet.optional("Reason", raw.text(state, "reason"), 3),
        *sheet.optional("Message", raw.text(state, "message"), 3),
        sheet.field("Exit Code", str(raw.number(state, "exitCode")), 3),
        *sheet.optional("Signal", str(signal) if signal > 0 else "", 3),
        sheet.field("Started", sheet.moment(raw.text(state, "startedAt")), 3),
        sheet.field("Finished", sheet.moment(raw.text(state, "finishedAt")), 3),
    ]


def resources(record: Record, level: int) -> list[str]:
    """What is asked for, under its titles."""
    lines = []
    for part in ("limits", "requests"):
        wanted = sorted(raw.mapping(record, part).items())
        lines += [sheet.line(f"{part.capitalize()}:", level=level)] if wanted else []
        lines += [sheet.field(name, amounts.canonical(value), level + 1) for name, value in wanted]
    return lines


def _mounts(container: Record) -> list[str]:
    mounts = sorted(
        raw.records(container, "volumeMounts"), key=lambda mount: raw.text(mount, "mountPath")
    )
    if not mounts:
        return [sheet.field("Mounts", NONE, 2)]
    return [sheet.line("Mounts:", level=2), *(sheet.line(_mount(m), level=3) for m in mounts)]


def _mount(mount: Record) -> str:
    flags = "ro" if raw.value(mount, "readOnly") is True else "rw"
    if path := raw.text(mount, "subPath"):
        flags += f",path={json.dumps(path, ensure_ascii=False)}"
    return f"{raw.text(mount, 'mountPath')} from {raw.text(mount, 'name')} ({flags})"
