"""Pods: bound to a node once, run by its agent, deleted with grace; pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from orch.server import fieldcauses as causes
from orch.server.strategy import poddefaults, podvalidation
from orch.server.strategy.base import Document, Strategy, keep, text_at
from orch.server.strategy.qos import qos_class
from orch.wire.errors import Cause
from orch.wire.kinds import PODS
from orch.wire.names import ANNOTATION_CONFIG_MIRROR

FINISHED = ("Succeeded", "Failed")
DEFAULT_GRACE_S = 30
_GRACE_MAX_S = 2**31 - 1  # 68 years: the end of it must still be a date


def node_of(pod: Document) -> str:
    return text_at(pod, "spec.nodeName")


def _prepare_create(document: Document) -> None:
    spec = document.setdefault("spec", {})
    poddefaults.fill(spec)
    document["metadata"]["generation"] = 1
    document["status"] = {"phase": "Pending"}
    # A quantity that is none has no class: validation refuses the pod for it.
    with contextlib.suppress(ValueError):
        document["status"]["qosClass"] = qos_class(spec)


def _prepare_update(new: Document, old: Document) -> None:
    keep(new, old, "status")
    if (new.get("spec") or {}) != (old.get("spec") or {}):
        poddefaults.fill(new.setdefault("spec", {}))
        if new["spec"] != old.get("spec"):
            new["metadata"]["generation"] = (old["metadata"].get("generation") or 1) + 1


def _prepare_status(new: Document, old: Document) -> None:
    keep(new, old, "spec")
    keep(new["metadata"], old["metadata"], "ownerReferences")
    status = new.setdefault("status", {})
    if not status.get("qosClass"):
        keep(status, old.get("status") or {}, "qosClass")


def _validate(new: Document, old: Document | None) -> list[Cause]:
    spec = new.get("spec") or {}
    if old is None:
        return [*_unplaced_mirror_causes(new), *podvalidation.spec_causes(spec)]
    found = list(_mirror_causes(new, old))
    if spec != (old.get("spec") or {}):
        found += podvalidation.update_causes(spec, old.get("spec") or {})
    return found


def _unplaced_mirror_causes(new: Document) -> Iterator[Cause]:
    """What stands for a file of a node is on it from the beginning."""
    mirrored = (new["metadata"].get("annotations") or {}).get(ANNOTATION_CONFIG_MIRROR)
    if mirrored is not None and not node_of(new):
        yield causes.invalid_value(
            f"metadata.annotations[{ANNOTATION_CONFIG_MIRROR}]",
            mirrored,
            "must set spec.nodeName if mirror pod annotation is set",
        )


def _mirror_causes(new: Document, old: Document) -> Iterator[Cause]:
    """A mirror pod reaches for nothing of the API (`nodegraph`): it stays one, whoever writes."""
    before, after = (
        (pod["metadata"].get("annotations") or {}).get(ANNOTATION_CONFIG_MIRROR)
        for pod in (old, new)
    )
    if before != after:
        may_not = "add" if before is None else "remove or update"
        yield causes.forbidden(
            f"metadata.annotations[{ANNOTATION_CONFIG_MIRROR}]",
            f"may not {may_not} mirror pod annotation",
        )


def _grace_s(pod: Document, asked_s: int | None) -> int:
    """None is needed for a pod no agent runs, or one that has ended."""
    if not node_of(pod) or text_at(pod, "status.phase") in FINISHED:
        return 0
    if asked_s is not None:
        return min(asked_s, _GRACE_MAX_S) if asked_s >= 0 else 1
    own = (pod.get("spec") or {}).get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_S if own is None else min(int(own), _GRACE_MAX_S)


STRATEGY = Strategy(
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
)
