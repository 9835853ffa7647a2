"""Pods: bound to a node once, run by its agent, deleted with grace; and PodTemplates, stored for
programs that make pods of them, completed and checked as those would be; pure.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace

from orch.server.request.fields import without_added_fields
from orch.server.strategy import pod_defaults
from orch.server.strategy.base import Document, Strategy, keep, text_at
from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.managed.field_sets import NOTHING
from orch.wire.managed.ownership import including
from orch.wire.names import ANNOTATION_CONFIG_MIRROR
from orch.wire.podrules import isolation, podspec, resize, updates, validation
from orch.wire.podrules.podspec import DEFAULT_GRACE_S, FINAL_PHASES, LASTING, mirror_hash
from orch.wire.records.kinds import POD_TEMPLATES, PODS
from orch.wire.records.pods import Pod

BINDING, RESIZE = "binding", "resize"  # subresources
_OF_ADMISSION = ("priority", "preemptionPolicy")  # clients rarely send them back
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_GRACE_MAX_S = 2**31 - 1  # 68 years: its end must still be a valid date


def node_of(pod: Document) -> str:
    return text_at(pod, "spec.nodeName")


def _prepare_create(document: Document) -> None:
    spec = document.setdefault("spec", {})
    pod_defaults.fill(spec)
    document["metadata"]["generation"] = 1
    document["status"] = {"phase": "Pending"}
    if spec.get("schedulingGates"):
        document["status"]["conditions"] = [dict(_GATED)]
    # With an invalid quantity there is no class: validation then refuses the pod.
    with contextlib.suppress(ValueError):
        document["status"]["qosClass"] = podspec.qos_class(Pod.from_wire(document))


def _prepare_update(new: Document, old: Document) -> None:
    keep(new, old, "status")
    if (new.get("spec") or {}) != (old.get("spec") or {}):
        # As in the reference, these have no effect, and refuse nothing that may change.
        before = old.get("spec") or {}
        spec = without_added_fields("Pod", "spec", before, new.get("spec") or {})
        new["spec"] = spec
        for name in _OF_ADMISSION:
            if spec.get(name) is None:
                keep(spec, before, name)
        pod_defaults.fill(spec)
        if new["spec"] != old.get("spec"):
            new["metadata"]["generation"] = _next_generation(old)


def _next_generation(old: Document) -> int:
    return int(old["metadata"].get("generation") or 1) + 1


def _prepare_ephemeral(new: Document, old: Document) -> None:
    """Only the ephemeral containers of the sent pod count."""
    before = old.get("spec") or {}
    sent = copy.deepcopy((new.get("spec") or {}).get("ephemeralContainers") or [])
    for container in sent:
        pod_defaults.fill_container(container, host_network=False)
    spec = {name: part for name, part in before.items() if name != "ephemeralContainers"}
    new["spec"] = {**spec, "ephemeralContainers": sent} if sent else spec
    new["metadata"] = dict(old["metadata"])
    keep(new, old, "status")
    if new["spec"] != before:
        new["metadata"]["generation"] = _next_generation(old)


def _prepare_resize(new: Document, old: Document) -> None:
    """Only the sizes of the sent pod count."""
    before, sent = old.get("spec") or {}, copy.deepcopy(new.get("spec") or {})
    spec = resize.sized_spec(sent, copy.deepcopy(before))
    pod_defaults.fill_sizes(spec)
    new["spec"], new["metadata"] = spec, dict(old["metadata"])
    keep(new, old, "status")
    if spec != before:
        new["metadata"]["generation"] = _next_generation(old)


def _prepare_status(new: Document, old: Document) -> None:
    keep(new, old, "spec")
    keep(new["metadata"], old["metadata"], "ownerReferences")
    status = new.setdefault("status", {})
    if not status.get("qosClass"):
        keep(status, old.get("status") or {}, "qosClass")


def _validate(new: Document, old: Document | None) -> Iterator[Cause]:
    spec = new.get("spec") or {}
    if old is None:
        yield from validation.creation_causes(new["metadata"], spec)
        yield from _created_causes(new)
        return
    yield from _mirror_causes(new, old)
    before, after = (raw.mapping(pod, "metadata", "annotations") for pod in (old, new))
    yield from isolation.annotation_causes(after, before)
    if spec != (old.get("spec") or {}):
        yield from updates.update_causes(spec, old.get("spec") or {})


def _validate_ephemeral(new: Document, old: Document | None) -> Iterable[Cause]:
    if mirror_hash(new) is not None:
        why = "static pods do not support ephemeral containers"
        return [causes.forbidden("spec.ephemeralContainers", why)]
    return updates.ephemeral_causes(new.get("spec") or {}, (old or {}).get("spec") or {})


def _validate_resize(new: Document, old: Document | None) -> Iterator[Cause]:
    former = old or {}
    found = [*resize.resize_causes(new, former)]
    yield from found
    if found:
        return
    before, after = (podspec.qos_class(Pod.from_wire(pod)) for pod in (former, new))
    if (text_at(former, "status.qosClass") or before) != after:
        text = "Pod QOS Class may not change as a result of resizing"
        yield causes.invalid_value("spec", text_at(former, "status.qosClass"), text)


def _created_causes(new: Document) -> Iterator[Cause]:
    """A mirror pod is bound from the beginning."""
    mirrored = mirror_hash(new)
    if mirrored is not None and not node_of(new):
        yield causes.invalid_value(
            f"metadata.annotations[{ANNOTATION_CONFIG_MIRROR}]",
            mirrored,
            "must set spec.nodeName if mirror pod annotation is set",
        )


def _mirror_causes(new: Document, old: Document) -> Iterator[Cause]:
    """A mirror pod references nothing of the API (`node_graph`), so it must stay a mirror pod."""
    before, after = mirror_hash(old), mirror_hash(new)
    if before != after:
        may_not = "add" if before is None else "remove or update"
        yield causes.forbidden(
            f"metadata.annotations[{ANNOTATION_CONFIG_MIRROR}]",
            f"may not {may_not} mirror pod annotation",
        )


def _grace_s(pod: Document, asked_s: int | None) -> int:
    """The grace period; 0 for a pod that no agent runs, or that has ended."""
    if not node_of(pod) or text_at(pod, "status.phase") in FINAL_PHASES:
        return 0
    own = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    given = own if asked_s is None else asked_s
    if given is None:
        return DEFAULT_GRACE_S
    return min(given, _GRACE_MAX_S) if given >= 0 else 1  # as the reference reads a negative one


_OBJECT = Strategy(
    PODS,
    paths=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    watched_by=("spec.nodeName",),
    aliases={"spec.host": "spec.nodeName"},
    defaults={"spec.hostNetwork": "false"},
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_status=_prepare_status,
    validate=_validate,
    grace_s=_grace_s,
    returns_deleted=True,
    kept_by_status={
        "f:spec": NOTHING,
        "f:metadata": {"f:deletionTimestamp": NOTHING, "f:ownerReferences": NOTHING},
    },
)
_EPHEMERAL = replace(
    _OBJECT,
    prepare_update=_prepare_ephemeral,
    validate=_validate_ephemeral,
    owned=including(("f:spec", "f:ephemeralContainers")),
)
_RESIZE = replace(
    _OBJECT,
    prepare_update=_prepare_resize,
    validate=_validate_resize,
    owned=including(
        ("f:spec", "f:resources"),
        *(("f:spec", f"f:{name}", "*", f"f:{part}") for name in LASTING for part in resize.SIZED),
    ),
)
STRATEGY = replace(_OBJECT, parts={"ephemeralcontainers": _EPHEMERAL, RESIZE: _RESIZE})


def _prepare_template(document: Document) -> None:
    document["template"] = template = document.get("template") or {}
    pod_defaults.complete(template.setdefault("spec", {}))


def _prepare_new_template(document: Document) -> None:
    _prepare_template(document)
    document["metadata"]["generation"] = 1


def _prepare_changed_template(new: Document, old: Document) -> None:
    _prepare_template(new)
    generation = int(old["metadata"].get("generation") or 1)
    changed = new["template"] != old.get("template")
    new["metadata"]["generation"] = generation + changed


def _validate_template(new: Document, old: Document | None) -> Iterator[Cause]:
    template = new["template"]
    if old is not None and template == old.get("template"):
        return
    metadata = template.get("metadata") or {}
    for cause in validation.creation_causes(metadata, template["spec"]):
        yield replace(cause, field=f"template.{cause.field}")


TEMPLATE_STRATEGY = Strategy(
    POD_TEMPLATES,
    prepare_create=_prepare_new_template,
    prepare_update=_prepare_changed_template,
    validate=_validate_template,
    returns_deleted=True,
)
