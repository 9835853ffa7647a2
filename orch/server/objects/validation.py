"""Validation of every kind: its metadata, and the shape of its record; pure.

Rules of one kind alone are in its strategy. An update validates only the parts of the metadata that
it changes: a heartbeat every ten seconds must stay cheap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from itertools import chain, islice
from typing import Any

from pydantic import ValidationError

from orch.server.request.decoding import Misfit, misfits
from orch.server.strategy.base import Document, Strategy
from orch.wire import causes
from orch.wire.errors import ApiError, Cause, bad_request, invalid
from orch.wire.records.kinds import Resource
from orch.wire.records.meta import TO_STORE, ApiObject
from orch.wire.validation import (
    dns1123_label_problems,
    label_value_problems,
    qualified_name_problems,
)

MAX_BYTES = 256 * 1024  # of an object's annotations (as the reference has it), and of its labels
MAX_ITEMS = 1000  # labels, annotations, owners or finalizers
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_CAUSES_SHOWN = 100
_PROBLEMS_MAX = 1000  # listing them takes longer than finding them
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")
_NO_OWNER = ("v1", "Event")  # deleted within the hour, and its dependents with it
_VALUES = ("missing", "literal_error")  # pydantic's names
_TYPES = {
    "string_type": "string", "int_type": "integer", "int_from_float": "integer",
    "bool_type": "boolean", "float_type": "number", "list_type": "array", "dict_type": "object",
    "model_type": "object",
}  # fmt: skip
# The reference's words for them, where a patch puts another value there.
_RESTORED = {"dict_type": "map from", "list_type": "slice from", "model_type": "struct from:"}
_KINDS = {str: "string", bool: "bool", int: "int64", float: "float64", list: "slice", dict: "map"}
_MEMBERS = (("int_type", "int"), ("string_type", "str"))  # of a field that takes both
_PROBLEMS_SHOWN = 8
_SHOWN_MAX = 200  # characters of a value
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp")


def check_shape(
    strategy: Strategy, document: Document, old: Document | None = None, *, patched: bool = False
) -> ApiObject:
    """The document's record; ApiError 400 for a field of a wrong type, 422 when the only problems
    are missing fields and values outside an enumeration, and for whatever a patch made.

    Of a change, what fields that are only kept had in `old` is not held against it.

    Nothing is converted: the document is stored as it is, and `"30"` for a number would break its
    readers.
    """
    try:
        record = strategy.resource.model.model_validate(document, strict=True, context=TO_STORE)
    except ValidationError as error:
        if error.error_count() > _PROBLEMS_MAX:
            text = f"{error.error_count()} of its values are missing or of a wrong type"
            raise _unfit(strategy.resource, text) from None
        found = error.errors(include_url=False)
        if patched or all(problem["type"] in _VALUES for problem in found):
            metadata = document.get("metadata")
            name = metadata.get("name", "") if isinstance(metadata, dict) else ""
            shown = [_shape_cause(problem) for problem in found[:_CAUSES_SHOWN]]
            raise refusal(strategy, name, shown) from None
        raise _unfit(strategy.resource, shape_problems(error)) from None
    _require_decodable(strategy, document, old, patched=patched)
    return record


def _require_decodable(
    strategy: Strategy, document: Document, old: Document | None, *, patched: bool
) -> None:
    found = misfits(strategy.resource.model, document)
    if found and old is not None:
        held = misfits(strategy.resource.model, old)
        found = [one for one in found if one not in held]
    if not found:
        return
    if not patched:
        shown = "; ".join(map(_misfit_text, found[:_PROBLEMS_SHOWN]))
        raise _unfit(strategy.resource, shown)
    name = document.get("metadata", {}).get("name", "")
    raise refusal(strategy, name, [_misfit_cause(one) for one in found])


def _misfit_text(misfit: Misfit) -> str:
    wrong_type = f"must be of type {misfit.wanted}, not {causes.json_type(misfit.value)}"
    return f"{misfit.path[:_SHOWN_MAX]}: {misfit.why or wrong_type}"


def _misfit_cause(misfit: Misfit) -> Cause:
    if misfit.wanted:
        return causes.wrong_type(misfit.path, misfit.value, misfit.wanted)
    return causes.invalid_value(misfit.path, misfit.value, misfit.why)


def _unfit(resource: Resource, why: str) -> ApiError:
    return bad_request(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a'
        f" {resource.kind}: {why}"
    )


def check(strategy: Strategy, new: Document, old: Document | None = None) -> None:
    """ApiError 422 with the causes found in the metadata and by the kind's own rules, 100 at most:
    each is longer than what it is about.
    """
    metadata = metadata_causes(strategy, new["metadata"], old["metadata"] if old else None)
    found = [*islice(chain(metadata, strategy.validate(new, old)), _CAUSES_SHOWN)]
    if found:
        raise refusal(strategy, new["metadata"].get("name", ""), found)


def refusal(strategy: Strategy, name: str, found: Sequence[Cause]) -> ApiError:
    return invalid(strategy.resource.kind, name, tuple(found), strategy.resource.group)


def metadata_causes(
    strategy: Strategy, new: dict[str, Any], old: dict[str, Any] | None
) -> Iterator[Cause]:
    """Causes in an object's metadata; `old` is None for a creation."""
    if old is None:
        yield from _name_causes(strategy, new)
    else:
        for name in _IMMUTABLE:
            if new.get(name) != old.get(name):
                yield causes.invalid_value(f"metadata.{name}", new.get(name), "field is immutable")
    before = old or {}
    if new.get("labels") != before.get("labels"):
        yield from _label_causes(new.get("labels") or {})
    if new.get("annotations") != before.get("annotations"):
        yield from _annotation_causes(new.get("annotations") or {})
    if new.get("ownerReferences") != before.get("ownerReferences"):
        yield from _owner_causes(new.get("ownerReferences") or [])
    if new.get("finalizers") != before.get("finalizers"):
        yield from _finalizer_causes(strategy, new, before)


def _name_causes(strategy: Strategy, metadata: dict[str, Any]) -> Iterator[Cause]:
    name = metadata.get("name")
    if not name:
        yield causes.required("metadata.name", "name or generateName is required")
    else:
        for problem in strategy.name_problems(name):
            yield causes.invalid_value("metadata.name", name, problem)
    if strategy.resource.namespaced:
        namespace = metadata.get("namespace", "")
        for problem in dns1123_label_problems(namespace):
            yield causes.invalid_value("metadata.namespace", namespace, problem)


def _label_causes(labels: dict[str, str]) -> Iterator[Cause]:
    yield from _size_causes("metadata.labels", labels)
    for key, value in labels.items():
        for problem in qualified_name_problems(key):
            yield causes.invalid_value("metadata.labels", key, problem)
        for problem in label_value_problems(value):
            yield causes.invalid_value("metadata.labels", value, problem)


def _annotation_causes(annotations: dict[str, str]) -> Iterator[Cause]:
    yield from _size_causes("metadata.annotations", annotations)
    for key in annotations:
        for problem in qualified_name_problems(key.lower()):
            yield causes.invalid_value("metadata.annotations", key, problem)


def _size_causes(path: str, texts: Mapping[str, str]) -> Iterator[Cause]:
    """How much an object may hold of what every reader of it gets, and agents pass on."""
    yield from _count_causes(path, texts)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in texts.items())
    if size > MAX_BYTES:
        yield causes.too_long(path, f"may not be more than {MAX_BYTES} bytes")


def _count_causes(path: str, items: Sized) -> Iterator[Cause]:
    if len(items) > MAX_ITEMS:
        yield causes.too_many(path, len(items), MAX_ITEMS)


def _owner_causes(owners: list[dict[str, Any]]) -> Iterator[Cause]:
    yield from _count_causes("metadata.ownerReferences", owners)
    for index, owner in enumerate(owners):
        at = f"metadata.ownerReferences[{index}]"
        for name in _OWNER_FIELDS:
            if not owner.get(name):
                yield causes.required(f"{at}.{name}")
        if (owner.get("apiVersion"), owner.get("kind")) == _NO_OWNER:
            yield causes.invalid_value(at, owner, "an Event is disallowed from being an owner")
    controllers = sum(1 for owner in owners if owner.get("controller"))
    if controllers > 1:
        yield causes.invalid_value(
            "metadata.ownerReferences", controllers, "only one reference can have controller true"
        )


def _finalizer_causes(
    strategy: Strategy, new: dict[str, Any], old: dict[str, Any]
) -> Iterator[Cause]:
    finalizers = new.get("finalizers") or []
    yield from _count_causes("metadata.finalizers", finalizers)
    for index, finalizer in enumerate(finalizers):
        for problem in qualified_name_problems(finalizer):
            yield causes.invalid_value(f"metadata.finalizers[{index}]", finalizer, problem)
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        yield causes.invalid_value(
            "metadata.finalizers", finalizers, "orphan and foregroundDeletion exclude each other"
        )
    added = sorted(set(finalizers) - set(old.get("finalizers") or []))
    for finalizer in added if strategy.qualifies_finalizers else ():
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            index = finalizers.index(finalizer)
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield causes.invalid_value(f"metadata.finalizers[{index}]", finalizer, why)
    if added and old.get("deletionTimestamp"):
        yield causes.forbidden(
            "metadata.finalizers",
            f"no new finalizers can be added if the object is being deleted, found new: {added}",
        )


def _shape_cause(error: Any) -> Cause:
    kind, value, path = error["type"], error["input"], _path_of(error)
    if kind == "missing":
        return causes.required(path)
    if kind == "literal_error":
        return causes.not_supported(path, value, re.findall("'([^']*)'", error["ctx"]["expected"]))
    if kind in _TYPES:
        wanted = _RESTORED.get(kind)
        detail = f"cannot restore {wanted} {_KINDS.get(type(value), 'nil')}" if wanted else ""
        return causes.wrong_type(path, value, _TYPES[kind], detail)
    if kind == "too_long":
        return causes.too_many(path, error["ctx"]["actual_length"], error["ctx"]["max_length"])
    shown = value if isinstance(value, int | float) else str(value)[:_SHOWN_MAX]
    return causes.invalid_value(path, shown, error["msg"].removeprefix("Value error, "))


def shape_problems(error: ValidationError) -> str:
    """The first problems in one line, each with its path."""
    wanted: dict[str, list[str]] = {}  # a field that takes several types has a problem with each
    texts: dict[str, str] = {}
    for problem in error.errors(include_url=False)[:_PROBLEMS_SHOWN]:
        path = _path_of(problem)
        if problem["type"] in _TYPES:
            types = wanted.setdefault(path, [])
            types.append(_TYPES[problem["type"]])
            given = causes.json_type(problem["input"])
            texts[path] = f"{path}: must be of type {' or '.join(types)}, not {given}"
        elif problem["type"] == "missing":
            texts[path] = f"{path}: is required"
        else:
            texts[path] = f"{path}: {problem['msg'].removeprefix('Value error, ')}"
    return "; ".join(texts.values())


def _path_of(error: Any) -> str:
    place: tuple[str | int, ...] = error["loc"]
    path = ""
    for part in place[:-1] if (error["type"], place[-1]) in _MEMBERS else place:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.lstrip(".")
