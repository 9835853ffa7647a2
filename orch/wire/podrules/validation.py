"""Validation of the spec of a new pod: all causes, in the reference's wording.

The rules are the reference's (K:pkg/apis/core/validation/validation.go), for fields that an agent
acts on or that authors often get wrong; unknown fields pass. Works on documents, so that causes
quote what was written. Changes are validated in `updates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orch.wire import causes, quantity, raw
from orch.wire.errors import Cause
from orch.wire.podrules import isolation
from orch.wire.podrules.podspec import LASTING, LISTS, PULL_POLICIES, document_places
from orch.wire.validation import dns1123_label_problems, dns1123_subdomain_problems

Document = dict[str, Any]

_CHOICES = {
    "restartPolicy": ("Always", "OnFailure", "Never"),
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
}
_PROTOCOLS = ("TCP", "UDP", "SCTP")
INT32_MAX = 2**31 - 1
_PORT_MAX = 65535
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_ENDS_A_CONTAINER = ("livenessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_NOT_NEGATIVE = "must be greater than or equal to 0"


def spec_causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """The rules of every stored spec, mirror pods included."""
    for name, choices in _CHOICES.items():
        yield from _choice_causes(spec, name, choices, "spec")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not is_within(deadline, 1, INT32_MAX):
        text = f"must be between 1 and {INT32_MAX}, inclusive"
        yield causes.invalid_value("spec.activeDeadlineSeconds", deadline, text)
    if node := spec.get("nodeName"):
        for problem in dns1123_subdomain_problems(node):
            yield causes.invalid_value("spec.nodeName", node, problem)
    yield from isolation.seccomp_causes(spec, "spec")
    for path, container in document_places(spec):
        yield from isolation.seccomp_causes(container, path)
    yield from runnable_causes(spec)


def runnable_causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """The part of `spec_causes` that static pods must satisfy, else an agent cannot run them."""
    if not spec.get("containers"):
        yield causes.required("spec.containers")
    system = raw.value(spec, "os", "name")
    if system not in (None, "", "linux"):  # pod security asks less of pods for Windows
        yield causes.not_supported("spec.os.name", system, ("linux",))
    grace_s = spec.get("terminationGracePeriodSeconds")
    if grace_s is not None and grace_s < 0:
        yield causes.invalid_value("spec.terminationGracePeriodSeconds", grace_s, _NOT_NEGATIVE)
    yield from isolation.pod_causes(spec)
    volumes = spec.get("volumes") or []
    yield from name_causes(volumes, "spec.volumes", set())
    for index, volume in enumerate(volumes):
        size = (volume.get("emptyDir") or {}).get("sizeLimit")
        if size is not None:
            yield from _amount_causes({"sizeLimit": size}, f"spec.volumes[{index}].emptyDir")
    known = {volume.get("name") for volume in volumes}
    seen: set[str] = set()
    for name in LISTS:
        yield from name_causes(spec.get(name) or (), f"spec.{name}", seen)
        for path, container in document_places(spec, (name,)):
            yield from container_causes(container, path, known)


def content_causes(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Contradictions, and missing alternatives where exactly one is required.

    Not checked in mirror pods: their static pod already runs, and is shown as it is.
    """
    for name in ("hostname", "subdomain"):
        for problem in _label_problems(spec.get(name) or ""):
            yield causes.invalid_value(f"spec.{name}", spec[name], problem)
    for index, volume in enumerate(spec.get("volumes") or ()):
        for extra in [name for name in volume if name != "name"][1:]:
            at = f"spec.volumes[{index}].{extra}"
            yield causes.forbidden(at, "may not specify more than 1 volume type")
    for path, container in document_places(spec, LASTING):
        yield from _content_causes(container, path)


def name_causes(items: Iterable[Document], path: str, seen: set[str]) -> Iterator[Cause]:
    """Names must exist, be labels, and differ from those in `seen`, to which they are added."""
    for index, item in enumerate(items):
        name = item.get("name") or ""
        at = f"{path}[{index}].name"
        if not name:
            yield causes.required(at)
        elif name in seen:
            yield causes.duplicate(at, name)
        else:
            for problem in dns1123_label_problems(name):
                yield causes.invalid_value(at, name, problem)
        seen.add(name)


def container_causes(container: Document, path: str, volumes: set[Any]) -> Iterator[Cause]:
    """What is wrong with a container of any list, except its name."""
    if not (container.get("image") or "").strip():
        yield causes.required(f"{path}.image")
    yield from _choice_causes(container, "imagePullPolicy", PULL_POLICIES, path)
    for index, port in enumerate(container.get("ports") or ()):
        yield from _port_causes(port, f"{path}.ports[{index}]")
    for index, variable in enumerate(container.get("env") or ()):
        name, at = variable.get("name"), f"{path}.env[{index}].name"
        if not name:
            yield causes.required(at)
        elif "=" in name:
            yield causes.invalid_value(at, name, "must not contain '='")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        at = f"{path}.volumeMounts[{index}]"
        if mount.get("name") not in volumes:
            yield causes.not_found(f"{at}.name", mount.get("name"))
        if not mount.get("mountPath"):
            yield causes.required(f"{at}.mountPath")
    for part in ("limits", "requests"):
        amounts = (container.get("resources") or {}).get(part) or {}
        yield from _amount_causes(amounts, f"{path}.resources.{part}")
    yield from isolation.container_causes(container, path)


def _choice_causes(
    record: Mapping[str, Any], name: str, choices: tuple[str, ...], path: str
) -> Iterator[Cause]:
    if record.get(name) and record[name] not in choices:  # an empty text means: the default
        yield causes.not_supported(f"{path}.{name}", record[name], choices)


def _port_causes(port: Document, path: str) -> Iterator[Cause]:
    for name, least in (("containerPort", 1), ("hostPort", 0)):  # hostPort 0 means none
        number = port.get(name)
        if number is not None and not is_within(number, least, _PORT_MAX):
            text = f"must be between 1 and {_PORT_MAX}"
            yield causes.invalid_value(f"{path}.{name}", number, text)
    yield from _choice_causes(port, "protocol", _PROTOCOLS, path)


def _amount_causes(amounts: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for name, amount in amounts.items():
        try:
            problem = _NOT_NEGATIVE if quantity.parse_quantity(amount) < 0 else ""
        except ValueError as error:
            problem = str(error)
        if problem:
            yield causes.invalid_value(f"{path}.{name}", amount, problem)


def _content_causes(container: Document, path: str) -> Iterator[Cause]:
    for index, variable in enumerate(container.get("env") or ()):
        yield from _source_causes(variable, f"{path}.env[{index}].valueFrom")
    mounted: set[Any] = set()
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = mount.get("mountPath")
        if where in mounted:
            at = f"{path}.volumeMounts[{index}].mountPath"
            yield causes.invalid_value(at, where, "must be unique")
        mounted.add(where)
    for name in _PROBES:
        if container.get(name) is not None:
            yield from _handler_causes(container[name], f"{path}.{name}")
    for name in _ENDS_A_CONTAINER:
        successes = (container.get(name) or {}).get("successThreshold")
        if successes not in (None, 1):
            yield causes.invalid_value(f"{path}.{name}.successThreshold", successes, "must be 1")
    for name, hook in (container.get("lifecycle") or {}).items():
        if isinstance(hook, dict):
            yield from _handler_causes(hook, f"{path}.lifecycle.{name}")
    yield from _limit_causes(container.get("resources") or {}, f"{path}.resources.requests")


def _source_causes(variable: Document, path: str) -> Iterator[Cause]:
    source = variable.get("valueFrom")
    if source is None:
        return
    if variable.get("value"):
        yield causes.invalid_value(path, "", "may not be specified when `value` is not empty")
    named = [name for name in _SOURCES if source.get(name) is not None]
    if not named:
        detail = f"must specify one of: {', '.join(f'`{name}`' for name in _SOURCES)}"
        yield causes.invalid_value(path, "", detail)
    elif len(named) > 1:
        yield causes.invalid_value(path, "", "may not have more than one field specified at a time")


def _handler_causes(record: Document, path: str) -> Iterator[Cause]:
    """A probe or a hook has exactly one handler."""
    named = [name for name in _HANDLERS if record.get(name) is not None]
    if not named:
        yield causes.required(path, "must specify a handler type")
    for extra in named[1:]:
        yield causes.forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")


def _limit_causes(resources: Document, path: str) -> Iterator[Cause]:
    limits = resources.get("limits") or {}
    for name, amount in (resources.get("requests") or {}).items():
        if name in limits and _exceeds(amount, limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            yield causes.invalid_value(path, amount, detail)


def _exceeds(amount: Any, limit: Any) -> bool:
    try:
        return quantity.parse_quantity(amount) > quantity.parse_quantity(limit)
    except ValueError:
        return False  # reported by _amount_causes


def _label_problems(text: Any) -> tuple[str, ...]:
    if not isinstance(text, str):
        return ("must be a text",)
    return dns1123_label_problems(text) if text else ()


def is_within(number: Any, least: int, most: int) -> bool:
    return isinstance(number, int) and least <= number <= most
