"""`metadata.managedFields`: its entries read and written, merged when there are many; pure.

An entry names a manager, what it did (updated or applied), in which version of the kind and through
which subresource. Together these are its identity; of those who apply, the version is not part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from orch.wire.errors import ApiError, Cause, bad_request
from orch.wire.managed import field_sets
from orch.wire.managed.field_sets import FieldSet, union
from orch.wire.managed.ownership import ConflictError, Owned
from orch.wire.times import is_stored_time

UPDATE, APPLY = "Update", "Apply"
NAME_MAX = 128  # bytes of a manager's name
UPDATERS_MAX = 10
ENTRIES_MAX = 100
VALUES_MAX = 60_000  # of all entries as JSON: the largest object with one manager
MERGED = "ancient-changes"  # holds the fields of the oldest updaters
UNKNOWN_NAME = "unknown"
_FIELDS_TYPE = "FieldsV1"
_CAUSES_MAX = 1000
_SHOWN_MAX = 100  # conflicts in the text for people


class Manager(NamedTuple):
    """The identity of an entry; `api_version` is "" for one that applied."""

    name: str
    operation: str
    api_version: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Managed:
    """All managers of an object, and when each last changed it."""

    owners: Mapping[Manager, Owned] = field(default_factory=dict)
    times: Mapping[Manager, str] = field(default_factory=dict)


NOBODY = Managed()


def read(entries: Any, api_version: str) -> Managed:
    """What a client sent; entries of versions that the kind does not have are left out.

    ValueError for what is malformed, or more than an object may have.
    """
    if not isinstance(entries, list):
        raise ValueError("must be a list")
    if len(entries) > ENTRIES_MAX:
        raise ValueError(f"has {len(entries)} entries: at most {ENTRIES_MAX} are allowed")
    owners, times = {}, {}
    for index, entry in enumerate(entries):
        try:
            manager, fields = _read_entry(entry)
        except ValueError as error:
            raise ValueError(f"[{index}]: {error}") from None
        if entry["apiVersion"] == api_version:
            owners[manager] = Owned(fields, manager.operation == APPLY)
            times[manager] = entry.get("time") or ""
    return Managed(owners, times)


def _read_entry(entry: Any) -> tuple[Manager, FieldSet]:
    if not isinstance(entry, dict):
        raise ValueError("must be an object")
    texts = [
        entry.get(name) or "" for name in ("manager", "operation", "apiVersion", "subresource")
    ]
    if not all(isinstance(text, str) for text in (*texts, entry.get("time") or "")):
        raise ValueError("has a field that must be a text")
    name, operation, version, subresource = texts
    if operation not in (UPDATE, APPLY):
        raise ValueError("operation must be `Apply` or `Update`")
    if not version:
        raise ValueError("apiVersion must not be empty")
    if len(name.encode()) > NAME_MAX or len(subresource.encode()) > NAME_MAX:
        raise ValueError(f"manager and subresource may have {NAME_MAX} bytes")
    if entry.get("time") and not is_stored_time(entry["time"]):
        raise ValueError("time must be an RFC 3339 time")  # else typed clients can read no list
    if entry.get("fieldsType") != _FIELDS_TYPE:
        raise ValueError(f"fieldsType must be {_FIELDS_TYPE}")
    fields = field_sets.children(field_sets.parse(entry.get("fieldsV1") or {}))
    return Manager(name, operation, version if operation == UPDATE else "", subresource), fields


def stored(entries: Sequence[Mapping[str, Any]]) -> Managed:
    """What this module wrote."""
    owners, times = {}, {}
    for entry in entries:
        operation = entry["operation"]
        version = entry["apiVersion"] if operation == UPDATE else ""
        manager = Manager(entry["manager"], operation, version, entry.get("subresource", ""))
        owners[manager] = Owned(entry["fieldsV1"], operation == APPLY)
        times[manager] = entry.get("time", "")
    return Managed(owners, times)


def written(managed: Managed, api_version: str) -> list[dict[str, Any]]:
    """The entries, those who applied first, the oldest first of each."""
    by_age = sorted(
        managed.owners, key=lambda m: (m.operation, managed.times.get(m, ""), m.name, m.subresource)
    )
    return [_entry(managed, manager, api_version) for manager in by_age]


def _entry(managed: Managed, manager: Manager, api_version: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version or api_version,
    }
    if managed.times.get(manager):
        entry["time"] = managed.times[manager]
    entry |= {"fieldsType": _FIELDS_TYPE, "fieldsV1": managed.owners[manager].fields}
    if manager.subresource:
        entry["subresource"] = manager.subresource
    return entry


def without_times(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries in an order that does not depend on times, to be compared."""
    plain = [{name: value for name, value in e.items() if name != "time"} for e in entries]
    return sorted(plain, key=lambda e: (e["manager"], e["operation"], e.get("subresource", "")))


def is_reset(entries: Any) -> bool:
    """Whether a client asks to forget all managers: `[]` or `[{}]`."""
    return entries in ([], [{}])


def capped(managed: Managed) -> Managed:
    """At most UPDATERS_MAX that updated: the fields of the oldest become those of one entry."""
    updaters = [manager for manager in managed.owners if manager.operation == UPDATE]
    if len(updaters) <= UPDATERS_MAX:
        return managed
    updaters.sort(key=lambda manager: (managed.times.get(manager, ""), manager))
    owners, times = dict(managed.owners), dict(managed.times)
    oldest = updaters[: len(updaters) - UPDATERS_MAX + 1]
    fields: FieldSet = {}
    for manager in oldest:
        fields = union(fields, owners.pop(manager).fields)
    bucket = Manager(MERGED, UPDATE, oldest[-1].api_version)
    if bucket in owners:
        fields = union(fields, owners[bucket].fields)
    owners[bucket] = Owned(fields, applied=False)
    times[bucket] = times.get(oldest[-1], "")
    return Managed(owners, times)


def require_bounded(entries: Sequence[Mapping[str, Any]], values: int) -> None:
    """ApiError 413 for more entries, or more values in them, than an object may have."""
    reset = "reset metadata.managedFields by a patch to [{}], or apply under fewer names"
    if len(entries) > ENTRIES_MAX:
        text = f"the object has {len(entries)} field managers, may have {ENTRIES_MAX}: {reset}"
        raise ApiError(413, "RequestEntityTooLarge", text)
    if values > VALUES_MAX:
        text = f"metadata.managedFields has {values} values, may have {VALUES_MAX}: {reset}"
        raise ApiError(413, "RequestEntityTooLarge", text)


def name_from_agent(agent: str) -> str:
    """The manager that a User-Agent names: its text before the first slash."""
    text = agent[: 2 * NAME_MAX].partition("/")[0]
    name = "".join(char for char in text if char.isprintable())[:NAME_MAX]
    return name.encode()[:NAME_MAX].decode(errors="ignore") or UNKNOWN_NAME


def conflict(error: ConflictError) -> ApiError:
    """The refusal of an apply, a cause for each field."""
    found = [
        (manager, path)
        for manager in sorted(error.conflicts)
        for path in field_sets.paths(error.conflicts[manager])
    ]
    causes = tuple(
        Cause("FieldManagerConflict", f"conflict with {_shown(manager)}", path)
        for manager, path in found[:_CAUSES_MAX]
    )
    if len(found) == 1:
        text = f"1 conflict: conflict with {_shown(found[0][0])}: {found[0][1]}"
    else:
        text = f"{len(found)} conflicts: " + "\n".join(_lines(found))
    return ApiError(409, "Conflict", f"Apply failed with {text}", causes=causes)


def _lines(found: Sequence[tuple[Manager, str]]) -> Iterator[str]:
    before = None
    for manager, path in found[:_SHOWN_MAX]:
        if manager != before:
            yield f"conflicts with {_shown(manager)}:"
        before = manager
        yield f"- {path}"
    if len(found) > _SHOWN_MAX:
        yield f"- and {len(found) - _SHOWN_MAX} more"


def _shown(manager: Manager) -> str:
    text = orjson.dumps(manager.name).decode()
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    return f"{text} using {manager.api_version}" if manager.operation == UPDATE else text


def misfit(problems: Sequence[str], kind: str, api_version: str, name: str) -> ApiError:
    """The refusal of an applied object that does not fit the type of its kind."""
    listed = problems[0] if len(problems) == 1 else "errors:\n  " + "\n  ".join(problems)
    what = f"{name}; {api_version}, Kind={kind}"
    return bad_request(f"failed to create typed patch object ({what}): {listed}")
