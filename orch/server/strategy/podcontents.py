"""What in a new pod's spec contradicts itself, or says nothing where one thing must be said. Pure.

As in the reference (K:pkg/apis/core/validation/validation.go). A pod that stands for a file of a
node is not asked: it runs already, and is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orch.server import fieldcauses as causes
from orch.server.strategy.base import Document
from orch.wire import quantity
from orch.wire.errors import Cause
from orch.wire.validation import dns1123_label_problems

_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_ENDS_A_CONTAINER = ("livenessProbe", "startupProbe")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")


def content_causes(spec: Document) -> Iterator[Cause]:
    for name in ("hostname", "subdomain"):
        for problem in dns1123_label_problems(spec[name]) if spec.get(name) else ():
            yield causes.invalid_value(f"spec.{name}", spec[name], problem)
    for index, volume in enumerate(spec.get("volumes") or ()):
        for extra in [name for name in volume if name != "name"][1:]:
            at = f"spec.volumes[{index}].{extra}"
            yield causes.forbidden(at, "may not specify more than 1 volume type")
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            yield from _container_causes(container, f"spec.{part}[{index}]")


def _container_causes(container: Document, path: str) -> Iterator[Cause]:
    for index, variable in enumerate(container.get("env") or ()):
        yield from _variable_causes(variable, f"{path}.env[{index}]")
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


def _variable_causes(variable: Document, path: str) -> Iterator[Cause]:
    if "=" in (variable.get("name") or ""):
        yield causes.invalid_value(f"{path}.name", variable["name"], "must not contain '='")
    source = variable.get("valueFrom")
    if source is None:
        return
    if variable.get("value"):
        detail = "may not be specified when `value` is not empty"
        yield causes.invalid_value(f"{path}.valueFrom", "", detail)
    named = [name for name in _SOURCES if source.get(name) is not None]
    if not named:
        detail = f"must specify one of: {', '.join(f'`{name}`' for name in _SOURCES)}"
        yield causes.invalid_value(f"{path}.valueFrom", "", detail)
    elif len(named) > 1:
        detail = "may not have more than one field specified at a time"
        yield causes.invalid_value(f"{path}.valueFrom", "", detail)


def _handler_causes(record: Document, path: str) -> Iterator[Cause]:
    """Of a probe or a hook: exactly one thing is done."""
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
        return False  # told of where amounts are read
