"""Validation of changes to a pod's spec: images, deadlines, further tolerations, fewer gates.

While a pod has gates, its choice of nodes may be narrowed. Ephemeral containers may be added,
through a subresource. The rules are the reference's (K:pkg/apis/core/validation), but only what an
update changes is checked: a pod of an older release must not be stuck with its finalizers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.podrules.containers import common_causes, image_causes, name_causes, pod_facts
from orch.wire.podrules.placement import affinity_causes, label_causes, toleration_causes
from orch.wire.podrules.podspec import LASTING, document_places
from orch.wire.podrules.validation import INT32_MAX, is_within

Document = dict[str, Any]

# The fields missing in allowedEphemeralContainerFields (K:pkg/apis/core/validation/validation.go).
_NOT_EPHEMERAL = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules",
    "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip
_NO_EPHEMERAL = "cannot be set for an Ephemeral Container"
_SHOWN_MAX = 100
_GRACE = "terminationGracePeriodSeconds"
_NODE_AFFINITY = ("affinity", "nodeAffinity")
_TERMS = ("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_ONLY_CHANGES = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    " `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations`"
    " (only additions to existing tolerations),"
    " `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def update_causes(new: Document, old: Document) -> Iterator[Cause]:
    """The forbidden changes of an update."""
    for name in LASTING:
        if len(new.get(name) or ()) != len(old.get(name) or ()):
            text = "pod updates may not add or remove containers"
            yield causes.forbidden(f"spec.{name}", text)
            return
    before = [container.get("image") for _, container in document_places(old, LASTING)]
    places = document_places(new, LASTING)
    for (path, container), image in zip(places, before, strict=True):
        if container.get("image") != image:
            yield from image_causes(container, path)
    yield from _deadline_causes(new, old)
    if new.get("tolerations") != old.get("tolerations"):
        yield from _toleration_causes(new, old)
    yield from _gate_causes(new, old)
    gated = bool(old.get("schedulingGates"))
    if gated:
        yield from _narrowing_causes(new, old)
    if _fixed_part(new, old, gated=gated) != _fixed_part(old, old, gated=gated):
        yield causes.forbidden("spec", _ONLY_CHANGES)


def _deadline_causes(new: Document, old: Document) -> Iterator[Cause]:
    path = "spec.activeDeadlineSeconds"
    deadline, previous = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if deadline == previous:
        return
    if deadline is None:
        text = "must not update from a positive integer to nil value"
        yield causes.invalid_value(path, deadline, text)
    elif not is_within(deadline, 0, INT32_MAX):
        text = f"must be between 0 and {INT32_MAX}, inclusive"
        yield causes.invalid_value(path, deadline, text)
    elif isinstance(previous, int) and deadline > previous:
        text = "must be less than or equal to previous value"
        yield causes.invalid_value(path, deadline, text)


def _toleration_causes(new: Document, old: Document) -> Iterator[Cause]:
    if not _tolerations(old) <= _tolerations(new):
        text = "existing toleration can not be modified except its tolerationSeconds"
        yield causes.forbidden("spec.tolerations", text)
    else:
        yield from toleration_causes(new)


def _gate_causes(new: Document, old: Document) -> Iterator[Cause]:
    gates = {raw.text(gate, "name") for gate in raw.records(old, "schedulingGates")}
    for index, gate in enumerate(raw.records(new, "schedulingGates")):
        name = raw.text(gate, "name")
        if name not in gates:
            text = f"only deletion is allowed, but found new scheduling gate {name[:_SHOWN_MAX]!r}"
            yield causes.forbidden(f"spec.schedulingGates[{index}].name", text)


def _narrowing_causes(new: Document, old: Document) -> Iterator[Cause]:
    """A pod that waits may be told fewer nodes, never more or others."""
    before, after = raw.mapping(old, "nodeSelector"), raw.mapping(new, "nodeSelector")
    if before != after:
        if not before.items() <= after.items():
            text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            yield causes.invalid_value("spec.nodeSelector", after, text)
        yield from label_causes(after, "spec.nodeSelector")
    nodes, chosen = (raw.mapping(spec, *_NODE_AFFINITY) for spec in (old, new))
    if nodes != chosen:
        yield from _affinity_causes(chosen, nodes)
        yield from affinity_causes(raw.mapping(new, "affinity"), "spec.affinity")


def _affinity_causes(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    """Terms are alternatives, so each keeps its conditions, and there are no further ones."""
    before, after = (raw.records(affinity, *_TERMS) for affinity in (old, new))
    path = ".".join(("spec", *_NODE_AFFINITY, *_TERMS))
    if before and len(after) != len(before):
        yield causes.invalid_value(path, len(after), "no additions/deletions to non-empty list")
        return
    for index, (term, narrowed) in enumerate(zip(before, after, strict=False)):
        kept = all(
            raw.records(narrowed, name)[: len(raw.records(term, name))] == raw.records(term, name)
            for name in ("matchExpressions", "matchFields")
        )
        empty = not term.get("matchExpressions") and not term.get("matchFields")
        if not kept or (empty and narrowed != term):
            text = "only additions are allowed (no mutations or deletions)"
            yield causes.invalid_value(f"{path}[{index}]", narrowed, text)


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
    volumes = {raw.text(volume, "name"): volume for volume in raw.records(new, "volumes")}
    facts = pod_facts(new, volumes)
    for at, container in document_places(new, ("ephemeralContainers",)):
        yield from common_causes(container, at, facts)
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
    lasting = (_without(toleration, "tolerationSeconds") for toleration in tolerations)
    return {orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in lasting}


def _fixed_part(spec: Document, old: Document, *, gated: bool) -> Document:
    """What no update may change."""
    fixed = _without(spec, "activeDeadlineSeconds", "tolerations", "schedulingGates")
    for name in LASTING:
        if name in fixed:
            fixed[name] = [_without(container, "image") for container in fixed[name] or ()]
    if raw.number(old, _GRACE) < 0 and spec.get(_GRACE) == 1:
        fixed[_GRACE] = old[_GRACE]
    if gated:
        fixed.pop("nodeSelector", None)
        affinity = _without(raw.mapping(fixed, "affinity"), "nodeAffinity")
        fixed["affinity"] = affinity or None
    return fixed


def _without(record: Mapping[str, Any], *names: str) -> Document:
    return {name: value for name, value in record.items() if name not in names}
