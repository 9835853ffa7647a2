"""Query parameters and bodies that control a request, parsed strictly; pure.

An invalid value is refused (400, or 422 in the words of ListOptions and DeleteOptions); parameters
that do not apply are ignored.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import orjson

from orch.server.request.attributes import is_true
from orch.wire import causes
from orch.wire.errors import Cause, bad_request, invalid
from orch.wire.managed.entries import NAME_MAX, name_from_agent

Query = Mapping[str, str]
WriteKind = Literal["CreateOptions", "UpdateOptions", "PatchOptions"]

FIELD_VALIDATIONS = ("Ignore", "Warn", "Strict")
PROPAGATIONS = ("Orphan", "Background", "Foreground")
_DELETE_SHAPES = {
    "gracePeriodSeconds": (int, "an integer"),
    "preconditions": (dict, "an object"),
    "orphanDependents": (bool, "true or false"),
    "propagationPolicy": (str, "a text"),
    "dryRun": (list, "a list"),
}
_CONTINUE_VERSION = "meta.k8s.io/v1"
_DIGITS_MAX = 18  # these fit into 64 bits
_SHOWN_MAX = 40
_CAUSES_SHOWN = 100  # a body may have 20,000


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """`field_validation` is one of FIELD_VALIDATIONS, or "" by default.

    `manager` is whom the changed fields are recorded for, "" the server itself; a `named` one calls
    itself so. `force` is None unless the object is applied.
    """

    dry_run: bool = False
    field_validation: str = ""
    manager: str = ""
    named: bool = False
    force: bool | None = None

    @property
    def applies(self) -> bool:
        return self.force is not None


NO_OPTIONS = WriteOptions()


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """None: not set. `cascades`: asked for by `orphanDependents=false`, the older way."""

    grace_period_s: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None
    cascades: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Continue:
    """Where a page begins: at `revision` (-1: the newest), from `start` below the prefix."""

    revision: int
    start: str

    def encode(self) -> str:
        data = {"v": _CONTINUE_VERSION, "rv": self.revision, "start": self.start}
        return base64.urlsafe_b64encode(orjson.dumps(data)).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class ListOptions:
    """`resource_version` None: the newest; `exact`: exactly that version. `limit` 0: all.

    As in the reference, `limit` counts for nothing at version "0", and makes another one exact.
    """

    resource_version: int | None = None
    exact: bool = False
    limit: int = 0
    continuation: Continue | None = None
    bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout_s: int | None = None


def parse_write_options(
    query: Query, kind: WriteKind = "CreateOptions", agent: str = "", *, applies: bool = False
) -> WriteOptions:
    """`kind` names these options in a refusal; `agent` is the User-Agent, which names the manager
    where the query does not.
    """
    _refuse(kind, _write_causes(query, kind, applies=applies))
    named = query.get("fieldManager", "")
    return WriteOptions(
        dry_run=_dry_run(query.get("dryRun"), kind),
        field_validation=query.get("fieldValidation", ""),
        manager=named or name_from_agent(agent),
        named=bool(named),
        force=is_true(query.get("force")) if applies else None,
    )


def _write_causes(query: Query, kind: WriteKind, *, applies: bool) -> Iterator[Cause]:
    manager = query.get("fieldManager", "")
    if applies and not manager:
        yield causes.required("fieldManager", "is required for apply patch")
    if kind == "PatchOptions" and "force" in query and not applies:
        yield causes.forbidden("force", "may not be specified for non-apply patch")
    if len(manager.encode()) > NAME_MAX:
        yield causes.too_long("fieldManager", f"may not be more than {NAME_MAX} bytes")
    elif not manager.isprintable():
        yield causes.invalid_value(
            "fieldManager", manager, "should only contain printable characters"
        )
    validation = query.get("fieldValidation")
    if validation and validation not in FIELD_VALIDATIONS:
        yield causes.not_supported("fieldValidation", validation, FIELD_VALIDATIONS)


def parse_delete_options(query: Query, body: dict[str, Any]) -> DeleteOptions:
    """`body` is the DeleteOptions record, {} without one; the query fills in what it leaves out."""
    _refuse("DeleteOptions", _delete_causes(query, body))
    preconditions = _preconditions(body)
    asked = body.get("dryRun") or []
    wrong = [value for value in asked if value != "All"]
    _refuse(
        "DeleteOptions", (causes.not_supported("dryRun", value, ("All",)) for value in wrong[:1])
    )
    grace_s = body.get("gracePeriodSeconds")
    return DeleteOptions(
        grace_period_s=_integer(query, "gracePeriodSeconds") if grace_s is None else grace_s,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        propagation=_propagation(query, body),
        cascades=_orphan(query, body) is False,
        dry_run=bool(asked) or _dry_run(query.get("dryRun"), "DeleteOptions"),
    )


def _propagation(query: Query, body: dict[str, Any]) -> str | None:
    orphan = _orphan(query, body)
    if orphan is not None:
        return "Orphan" if orphan else "Background"
    return body.get("propagationPolicy") or query.get("propagationPolicy") or None


def _orphan(query: Query, body: dict[str, Any]) -> bool | None:
    if body.get("orphanDependents") is not None:
        return bool(body["orphanDependents"])
    asked = query.get("orphanDependents")
    return is_true(asked) if asked else None


def _preconditions(body: dict[str, Any]) -> dict[str, str]:
    found = body.get("preconditions")
    return found if isinstance(found, dict) else {}


def _delete_causes(query: Query, body: dict[str, Any]) -> Iterator[Cause]:
    for name, (shape, wanted) in _DELETE_SHAPES.items():
        value = body.get(name)
        if value is not None and type(value) is not shape:
            yield causes.invalid_value(name, value, f"must be {wanted}")
    for name, value in _preconditions(body).items():
        if not isinstance(value, str):
            yield causes.invalid_value(f"preconditions.{name}", value, "must be a text")
    policy = body.get("propagationPolicy") or query.get("propagationPolicy")
    if policy and policy not in PROPAGATIONS:
        yield causes.not_supported("propagationPolicy", policy, PROPAGATIONS)
    if policy and _orphan(query, body) is not None:
        yield causes.invalid_value(
            "propagationPolicy",
            policy,
            "orphanDependents and deletionPropagation cannot be both set",
        )


def parse_list_options(query: Query, *, watch: bool) -> ListOptions:
    _refuse("ListOptions", _list_causes(query, watch=watch))
    resource_version = _revision(query.get("resourceVersion", ""))
    continuation = parse_continue(query["continue"]) if query.get("continue") else None
    if continuation and resource_version:
        raise bad_request("specifying resource version is not allowed when using continue")
    timeout_s = _integer(query, "timeoutSeconds")
    limit = max(_integer(query, "limit") or 0, 0)
    if query.get("resourceVersion") == "0":
        limit = 0
    match = query.get("resourceVersionMatch") or ("Exact" if limit and resource_version else "")
    initial = query.get("sendInitialEvents")
    return ListOptions(
        resource_version=resource_version,
        exact=match == "Exact",
        limit=limit,
        continuation=continuation,
        bookmarks=is_true(query.get("allowWatchBookmarks")),
        send_initial_events=None if initial is None else is_true(initial),
        timeout_s=max(timeout_s, 0) if timeout_s else None,
    )


def parse_continue(token: str) -> Continue:
    """ApiError 400 for a token that this server did not issue."""
    try:
        data = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if data["v"] == _CONTINUE_VERSION and data["start"]:
            return Continue(int(data["rv"]), str(data["start"]))
    except (binascii.Error, ValueError, TypeError, KeyError):
        pass  # the same refusal as for a token of another version
    raise bad_request("continue key is not valid: start the list again without it")


def _list_causes(query: Query, *, watch: bool) -> Iterator[Cause]:
    path, match = "resourceVersionMatch", query.get("resourceVersionMatch")
    if not watch and "sendInitialEvents" in query:
        yield causes.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if "sendInitialEvents" in query and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        yield causes.forbidden(path, why)
    supported = ("NotOlderThan",) if watch else ("Exact", "NotOlderThan")
    if match not in (None, *supported):
        yield causes.not_supported(path, match, supported)
    elif match is not None:
        for where in _misplaced(match, query, watch=watch):
            yield causes.forbidden(path, f"{path} {where}")


def _misplaced(match: str, query: Query, *, watch: bool) -> Iterator[str]:
    """Where a `resourceVersionMatch` is forbidden, and is in this query."""
    version = query.get("resourceVersion", "")
    if watch:
        if "sendInitialEvents" not in query:
            yield "is forbidden for watch unless sendInitialEvents is provided"
        return
    if query.get("continue"):
        yield "is forbidden when continue is provided"
    if not version:
        yield "is forbidden unless resourceVersion is provided"
    if match == "Exact" and version == "0":
        yield '"exact" is forbidden for resourceVersion "0"'


def _revision(text: str) -> int | None:
    """None for "" and "0": the newest."""
    return None if text in ("", "0") else _whole("resourceVersion", text, text)


def _integer(query: Query, name: str) -> int | None:
    text = query.get(name)
    return _whole(name, text, text.removeprefix("-")) if text else None


def _whole(name: str, text: str, digits: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX):
        shown = text[:_SHOWN_MAX]
        raise bad_request(f"{name}: invalid value {shown!r}: it must be a whole number")
    return int(text)


def _dry_run(value: str | None, kind: str) -> bool:
    if value is None:
        return False
    if value != "All":  # "" as well: whoever asks for a dry run must not get the real one
        _refuse(kind, (causes.not_supported("dryRun", value, ("All",)),))
    return True


def _refuse(kind: str, found: Iterable[Cause]) -> None:
    """ApiError 422 with the causes found in options of this kind, if any."""
    listed = tuple(islice(found, _CAUSES_SHOWN))
    if listed:
        raise invalid(kind, "", listed, "meta.k8s.io")
