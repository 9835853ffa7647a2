"""Namespaces: Active until deleted, then Terminating until the server has emptied them; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orch.server.strategy.base import Document, Strategy, keep_spec, keep_status, text_at
from orch.wire import causes
from orch.wire.errors import Cause
from orch.wire.names import DEFAULT_NAMESPACE, NODE_LEASE_NAMESPACE, SYSTEM_NAMESPACE
from orch.wire.records.kinds import NAMESPACES, Resource
from orch.wire.validation import dns1123_label_problems

# Held until the contents are deleted; the server removes it (see `controllers.namespaces`).
FINALIZER = "orch"
AT_START = (DEFAULT_NAMESPACE, SYSTEM_NAMESPACE, NODE_LEASE_NAMESPACE)
PROTECTED = frozenset(AT_START)


def is_terminating(document: Document) -> bool:
    return bool(document["metadata"].get("deletionTimestamp"))


def holders_of(resource: Resource, document: Document) -> Sequence[str]:
    """The finalizers in a namespace's spec; other kinds have none there."""
    if resource is not NAMESPACES:
        return ()
    return (document.get("spec") or {}).get("finalizers") or ()


def _prepare_create(document: Document) -> None:
    spec = document.setdefault("spec", {})
    if FINALIZER not in (spec.get("finalizers") or []):
        spec["finalizers"] = [*(spec.get("finalizers") or []), FINALIZER]
    document["status"] = {"phase": "Active"}


def _prepare_update(new: Document, old: Document) -> None:
    keep_status(new, old)
    spec = new.setdefault("spec", {})
    spec["finalizers"] = (old.get("spec") or {}).get("finalizers") or []


def _validate(new: Document, old: Document | None) -> Iterator[Cause]:
    phase = text_at(new, "status.phase")
    wanted, state = ("Terminating", "not empty") if is_terminating(new) else ("Active", "empty")
    if phase != wanted and (old is None or phase != text_at(old, "status.phase")):
        why = f"may only be '{wanted}' if `deletionTimestamp` is {state}"
        yield causes.invalid_value("status.phase", phase, why)


STRATEGY = Strategy(
    NAMESPACES,
    paths=("status.phase",),
    name_problems=dns1123_label_problems,
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_status=keep_spec,
    validate=_validate,
    returns_deleted=True,
)
