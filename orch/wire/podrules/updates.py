"""Validation of changes to a pod's spec: images, deadlines and further tolerations are allowed.

Ephemeral containers may be added, through a subresource (K:pkg/apis/core/validation).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.podrules import isolation
from orch.wire.podrules.podspec import LASTING, document_places
from orch.wire.podrules.validation import INT32_MAX, container_causes, is_within, name_causes

Document = dict[str, Any]

# The fields missing in allowedEphemeralContainerFields (K:pkg/apis/core/validation/validation.go).
_NOT_EPHEMERAL = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules",
    "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip
_NO_EPHEMERAL = "cannot be set for an Ephemeral Container"
_ONLY_CHANGES = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    " `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations`"
    " (only additions to existing tolerations),"
    " `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def update_causes(new: Document, old: Document) -> Iterator[Cause]:
    """The forbidden changes of an update."""
    for path, container in document_places(new, LASTING):
        if not container.get("image"):
            yield causes.required(f"{path}.image")
    if not _tolerations(old) <= _tolerations(new):
        yield causes.forbidden("spec.tolerations", "existing tolerations may not be removed")
    deadline, previous = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    latest = previous if isinstance(previous, int) else INT32_MAX
    if deadline != previous and not is_within(deadline, 0, latest):
        text = "must be less than or equal to previous value"
        yield causes.invalid_value("spec.activeDeadlineSeconds", deadline, text)
    if _fixed_part(new) != _fixed_part(old):
        yield causes.forbidden("spec", _ONLY_CHANGES)


def ephemeral_causes(new: Document, old: Document) -> Iterator[Cause]:
    """What is wrong with the ephemeral containers of an update of `old`."""
    path = "spec.ephemeralContainers"
    containers = new.get("ephemeralContainers") or []
    by_name = {container.get("name"): container for container in containers}
    for before in old.get("ephemeralContainers") or ():
        after = by_name.get(before.get("name"))
        if after != before:
            may_not = "removed" if after is None else "changed"
            name = before.get("name")
            text = f'existing ephemeral containers "{name}" may not be {may_not}'
            yield causes.forbidden(path, text)
    lasting = {c.get("name") or "" for _, c in document_places(new, LASTING)}
    yield from name_causes(containers, path, set(lasting))
    volumes = {volume.get("name") for volume in new.get("volumes") or ()}
    for at, container in document_places(new, ("ephemeralContainers",)):
        yield from container_causes(container, at, volumes)
        yield from isolation.seccomp_causes(container, at)
        target = raw.text(container, "targetContainerName")
        if target and target not in lasting:
            yield causes.not_found(f"{at}.targetContainerName", target)
        yield from _not_ephemeral_causes(container, at)


def _not_ephemeral_causes(container: Document, path: str) -> Iterator[Cause]:
    """Fields that only regular containers may have."""
    for name in _NOT_EPHEMERAL:
        if container.get(name):
            yield causes.forbidden(f"{path}.{name}", _NO_EPHEMERAL)
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        for name in ("subPath", "subPathExpr"):
            if mount.get(name):
                yield causes.forbidden(f"{path}.volumeMounts[{index}].{name}", _NO_EPHEMERAL)


def _tolerations(spec: Document) -> set[bytes]:
    tolerations = spec.get("tolerations") or ()
    return {orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in tolerations}


def _fixed_part(spec: Document) -> Document:
    fixed = _without(spec, "activeDeadlineSeconds", "tolerations")
    for name in LASTING:
        if name in fixed:
            fixed[name] = [_without(container, "image") for container in fixed[name] or ()]
    return fixed


def _without(record: Document, *names: str) -> Document:
    return {name: value for name, value in record.items() if name not in names}
