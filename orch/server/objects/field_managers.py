"""Who set which field of an object: `metadata.managedFields`, recorded with every write; pure.

The rules are in `orch.wire.managed`. Here is when they apply: an object is recorded from its
creation on, or from its first apply. Of Leases and Events, which are written all the time, nothing
is recorded unless their creator names itself, or they are applied.
"""

from __future__ import annotations

from typing import Any

import orjson

from orch.server.objects.document import Document, ObjectTarget, same
from orch.server.objects.options import WriteOptions
from orch.server.request.bodies import (
    MAX_BYTES,
    MAX_VALUES,
    drop_nulls,
    require_bounded,
    structure,
    too_large,
    values_in,
)
from orch.wire.errors import bad_request
from orch.wire.managed import entries, field_sets, ownership, typed
from orch.wire.managed.entries import APPLY, NOBODY, UPDATE, Managed, Manager
from orch.wire.managed.field_sets import NOTHING, FieldSet
from orch.wire.managed.merging import compare
from orch.wire.managed.ownership import ConflictError, Filter, Owned
from orch.wire.managed.typed import Type
from orch.wire.patch.patch import PatchError

FIELD = "managedFields"
BEFORE_APPLY = "before-first-apply"
_SERVER = "orch-apiserver"
_CURRENT = Manager("", UPDATE)  # of the write that is under way
_PROBLEMS_SHOWN = 10
_KUBECTL = "kubectl"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ANNOTATIONS_MAX = 256 * 1024
_PARTS: Document = {"metadata": {}, "spec": {}, "status": {}}  # of any object: nobody adds them
# Nobody owns what identifies an object, and what the server alone sets.
_NEVER_OWNED: FieldSet = {
    "f:apiVersion": NOTHING,
    "f:kind": NOTHING,
    "f:metadata": {
        field_sets.SELF: NOTHING,
        **dict.fromkeys(
            ("f:name", "f:namespace", "f:creationTimestamp", "f:selfLink", "f:uid",
             "f:generation", "f:managedFields", "f:resourceVersion"),
            NOTHING,
        ),
    },
}  # fmt: skip


def record_creation(
    target: ObjectTarget, options: WriteOptions, document: Document, applied: Any, now: str
) -> None:
    """Set the managers of a new object; `applied` are those that an apply found."""
    if options.applies:
        _set(document, applied)
    elif options.named or target.strategy.records_managers:
        _set(document, _updated(target, options, NOBODY, {}, document, now))


def record_change(
    target: ObjectTarget,
    options: WriteOptions,
    sent: Document,
    new: Document,
    old: Document,
    now: str,
) -> None:
    """Set the managers of a changed object; those that a client sent count as theirs."""
    before = old["metadata"].get(FIELD) or []
    given = sent["metadata"].get(FIELD)
    if options.applies:
        unchanged = entries.without_times(given) == entries.without_times(before)
        _set(new, before if unchanged and same(plain(new), plain(old)) else given)
        return
    managed = _managed(target, given, before)
    if managed.owners:
        _set(new, _updated(target, options, managed, old, new, now))
    else:
        _set(new, [])


def _managed(target: ObjectTarget, given: Any, before: list[dict[str, Any]]) -> Managed:
    """The managers to start from: those that a client set, or else the stored ones."""
    if given is not None and given != before and not target.subresource:
        if entries.is_reset(given):
            return NOBODY
        try:
            read = entries.read(given, target.strategy.resource.api_version)
        except (ValueError, RecursionError):
            return entries.stored(before)  # as in the reference: it is no reason to refuse
        if read.owners and _values(given) <= entries.VALUES_MAX:
            return read
    return entries.stored(before)


def _updated(
    target: ObjectTarget,
    options: WriteOptions,
    managed: Managed,
    old: Document,
    new: Document,
    now: str,
) -> list[dict[str, Any]]:
    """The entries after an update."""
    resource = target.strategy.resource
    manager = Manager(options.manager or _SERVER, UPDATE, resource.api_version, target.subresource)
    try:
        after = _after_update(target, managed, manager, (old, new), now)
    except ValueError:  # an element that nothing tells from others: nobody can own it
        after = managed
    listed = entries.written(entries.capped(after), resource.api_version)
    if _values(listed) > entries.VALUES_MAX:  # of the largest objects, only those who apply
        return [entry for entry in listed if entry["operation"] == APPLY]
    return listed


def _after_update(
    target: ObjectTarget,
    managed: Managed,
    manager: Manager,
    change: tuple[Document, Document],
    now: str,
) -> Managed:
    kind, leave = target.strategy.type, _filter(target)
    old, new = ({**_PARTS, **plain(document)} for document in change)
    owners = ownership.update(kind, managed.owners, old, new, _CURRENT, leave)
    current = owners.pop(_CURRENT, Owned(NOTHING, applied=False)).fields
    gained = field_sets.difference(current, _NEVER_OWNED)
    times = managed.times
    if gained:
        before = owners[manager].fields if manager in owners else NOTHING
        fields = field_sets.union(before, gained)
        kept = managed.owners[manager].fields if manager in managed.owners else NOTHING
        owners[manager] = Owned(
            kept if fields == kept else field_sets.ordered(fields), applied=False
        )
        times = {**times, manager: now}
    return Managed(owners, times)


def _filter(target: ObjectTarget) -> Filter:
    """Leaves out the fields that a request for this (sub)resource does not set."""
    strategy = target.strategy
    if strategy.owned is not None:
        return strategy.owned
    if target.subresource == "status":
        return ownership.excluding(strategy.kept_by_status)
    if "status" in strategy.resource.subresources:
        return _without_status
    return ownership.keep_all


_without_status = ownership.excluding({"f:status": NOTHING})


def _values(listed: list[dict[str, Any]]) -> int:
    """As the values of bodies are counted."""
    text = orjson.dumps(listed)
    most = values_in(text)
    return most if most <= entries.VALUES_MAX else values_in(structure(text))


def plain(document: Any) -> Any:
    """The object without the record of its managers; other values as they are."""
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict) or FIELD not in metadata:
        return document
    return {**document, "metadata": {n: v for n, v in metadata.items() if n != FIELD}}


def _set(document: Document, listed: list[dict[str, Any]]) -> None:
    metadata = {n: v for n, v in document["metadata"].items() if n != FIELD}
    if listed:
        metadata[FIELD] = listed
    document["metadata"] = metadata


def keep(document: Document, before: Document) -> None:
    """Restore the managers: what webhooks change belongs to none, as in the reference."""
    _set(document, before["metadata"].get(FIELD) or [])


def require_fitting(target: ObjectTarget, config: Document) -> None:
    """ApiError 400 for an applied object that cannot be merged."""
    resource = target.strategy.resource
    if config["metadata"].get(FIELD) is not None:
        raise bad_request("metadata.managedFields must be nil")
    found = []
    for problem in typed.problems(target.strategy.type, config):
        found.append(problem)
        if len(found) == _PROBLEMS_SHOWN:
            break
    if found:
        name = f"{target.namespace}/{target.name}" if target.namespace else target.name
        raise entries.misfit(found, resource.kind, resource.api_version, name)


def applied(
    target: ObjectTarget, options: WriteOptions, config: Document, current: Document, now: str
) -> Document:
    """The object with this configuration applied, and its managers; `current` is {} for a new one.

    ApiError 400 for what cannot be merged, 409 for conflicts, 413.
    """
    resource = target.strategy.resource
    version = resource.api_version
    live = plain(current)
    managed = entries.stored((current.get("metadata") or {}).get(FIELD) or [])
    manager = Manager(options.manager, APPLY, subresource=target.subresource)
    try:
        if not managed.owners and live:
            before = Manager(BEFORE_APPLY, UPDATE, version)
            managed = _after_update(target, managed, before, ({}, live), now)
        merged = _merged(target, options, (live, config), managed, manager)
    except (ValueError, PatchError) as error:
        raise bad_request(f"the object cannot be applied: {error}") from None
    value: Document = drop_nulls(merged.value)
    own = merged.owners.get(manager)
    owners = {**merged.owners}
    if own is not None:
        fields = field_sets.difference(own.fields, _NEVER_OWNED)
        owners[manager] = Owned(field_sets.ordered(fields), applied=True)
        if not fields:
            del owners[manager]
    listed = entries.written(Managed(owners, {**managed.times, manager: now}), version)
    if _values(listed) > entries.VALUES_MAX:
        listed = [entry for entry in listed if entry["operation"] == APPLY]
    entries.require_bounded(listed, _values(listed))
    if options.manager == _KUBECTL:
        _refresh_last_applied(value, config)
    value["metadata"][FIELD] = listed
    return value


def _merged(
    target: ObjectTarget,
    options: WriteOptions,
    objects: tuple[Document, Document],
    managed: Managed,
    manager: Manager,
) -> ownership.Applied:
    kind, leave = target.strategy.type, _filter(target)

    def apply(*, force: bool) -> ownership.Applied:
        return ownership.apply(kind, managed.owners, *objects, manager, force=force, leave=leave)

    try:
        return apply(force=bool(options.force))
    except ConflictError as error:
        if options.manager != _KUBECTL:
            raise entries.conflict(error) from None
        allowed = _last_applied_fields(kind, objects[0])
        left = {
            other: rest
            for other, fields in error.conflicts.items()
            if (rest := field_sets.difference(fields, allowed))
        }
        if left:
            raise entries.conflict(ConflictError(left)) from None
    return apply(force=True)


def _last_applied_fields(kind: Type, live: Document) -> FieldSet:
    """What `kubectl apply` set when it merged by itself, and nobody changed since."""
    text = (live["metadata"].get("annotations") or {}).get(_LAST_APPLIED)
    try:
        last = orjson.loads(text or "")
        if not isinstance(last, dict) or last.get("apiVersion") != live["apiVersion"]:
            return NOTHING
        fields = typed.fields_of(kind, last)
        changes = compare(kind, last, live)
    except (ValueError, PatchError):
        return NOTHING
    for changed in changes:
        fields = field_sets.difference(fields, changed)
    return fields


def _refresh_last_applied(value: Document, config: Document) -> None:
    """Keep the annotation of an object that is also applied by merging it at the client."""
    annotations = value["metadata"].get("annotations") or {}
    if not annotations.get(_LAST_APPLIED):
        return
    metadata = dict(config["metadata"])
    if isinstance(metadata.get("annotations"), dict):
        given = {n: v for n, v in metadata["annotations"].items() if n != _LAST_APPLIED}
        metadata["annotations"] = given
    text = orjson.dumps({**config, "metadata": metadata}).decode() + "\n"
    others = {name: text for name, text in annotations.items() if name != _LAST_APPLIED}
    size = sum(len(n.encode()) + len(v.encode()) for n, v in others.items() if isinstance(v, str))
    if size + len(_LAST_APPLIED) + len(text.encode()) <= _ANNOTATIONS_MAX:
        others[_LAST_APPLIED] = text
    value["metadata"]["annotations"] = others


def require_storable(document: Document, data: bytes) -> None:
    """ApiError 413 for an object whose bytes are `data` and that is too large to be stored: the
    record of its managers counts as bytes, its values have a bound of their own.
    """
    if values_in(data) <= MAX_VALUES or FIELD not in document["metadata"]:
        require_bounded(data)
        return
    if len(data) > MAX_BYTES:
        raise too_large(f"is larger than {MAX_BYTES} bytes with {FIELD}")
    require_bounded(orjson.dumps(plain(document)))
