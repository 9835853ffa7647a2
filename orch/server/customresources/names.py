"""The names of kinds that users define: who gets which, and what is served; pure.

Within a group no two kinds share a name. Who had a name keeps it; of others the older definition
gets it. Every server finds the same answer from the same definitions, so none has to ask another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orch.server.strategy.base import Document

MAX_SERVED = 500  # definitions
MAX_BYTES = 16 * 1024 * 1024  # of all that are served, as stored

Names = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition as it is stored, in `size` bytes."""

    document: Document
    size: int

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def status(self) -> Document:
        found: Document = self.document.get("status") or {}
        return found

    @property
    def accepted(self) -> Names:
        """The names it has; {} for none."""
        names: Names = self.status.get("acceptedNames") or {}
        return names if names.get("plural") else {}

    @property
    def is_going(self) -> bool:
        return bool(self.document["metadata"].get("deletionTimestamp"))


@dataclass(frozen=True, slots=True)
class Naming:
    """`names` under which the kind is served, {} if it is not; `conditions` by type: status, reason
    and message.
    """

    names: Names
    conditions: Mapping[str, tuple[str, str, str]]


@dataclass(slots=True)
class _Taken:
    """By name, who has it."""

    resources: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def conflicts(self, names: Names, who: str) -> Iterator[tuple[str, str]]:
        """The names that others have, with the reason of a condition."""
        for scope, part, texts in _parts(names):
            held = self.kinds if scope == "kinds" else self.resources
            for text in texts:
                if held.get(text, who) != who:
                    yield f"{part[0].upper()}{part[1:]}Conflict", text

    def take(self, names: Names, who: str) -> None:
        for scope, _, texts in _parts(names):
            held = self.kinds if scope == "kinds" else self.resources
            held.update(dict.fromkeys(texts, who))


def _parts(names: Names) -> Iterator[tuple[str, str, Sequence[str]]]:
    for part in ("plural", "singular"):
        yield "resources", part, [names[part]] if names.get(part) else []
    yield "resources", "shortNames", names.get("shortNames") or []
    for part in ("kind", "listKind"):
        yield "kinds", part, [names[part]] if names.get(part) else []


def decide(definitions: Sequence[Definition]) -> dict[str, Naming]:
    """What becomes of each definition, by its name."""
    groups: dict[str, _Taken] = {}
    for definition in definitions:
        taken = groups.setdefault(definition.document["spec"]["group"], _Taken())
        taken.take(definition.accepted, definition.name)
    size = 0
    verdicts = {}
    for count, definition in enumerate(sorted(definitions, key=_age), 1):
        size += definition.size
        taken = groups[definition.document["spec"]["group"]]
        fits = count <= MAX_SERVED and size <= MAX_BYTES
        verdicts[definition.name] = _verdict(definition, taken, fits=fits)
    return verdicts


def _age(definition: Definition) -> tuple[bool, str, str]:
    created = definition.document["metadata"].get("creationTimestamp") or ""
    return not definition.accepted, created, definition.name


def _verdict(definition: Definition, taken: _Taken, *, fits: bool) -> Naming:
    wanted = definition.document["spec"]["names"]
    conflicts = [*taken.conflicts(wanted, definition.name)]
    names = definition.accepted
    if conflicts:
        reason, text = conflicts[0]
        accepted = ("False", reason, f'"{text}" is already in use')
    else:
        names = wanted
        taken.take(wanted, definition.name)
        accepted = ("True", "NoConflicts", "no conflicts found")
    if not fits:
        text = f"{MAX_SERVED} definitions, or {MAX_BYTES} bytes of them, are served already"
        established, names = ("False", "TooManyDefinitions", text), {}
    elif names:
        established = ("True", "InitialNamesAccepted", "the initial names have been accepted")
    else:
        established = ("False", "NotAccepted", "not all names are accepted")
    conditions = {"NamesAccepted": accepted, "Established": established}
    if definition.is_going:
        text = "its objects are being deleted"
        conditions["Terminating"] = ("True", "InstanceDeletionInProgress", text)
    return Naming(names, conditions)


def with_verdict(document: Document, verdict: Naming, now: str) -> Document:
    """The definition with the verdict in its status."""
    status = dict(document.get("status") or {})
    before = {c["type"]: c for c in status.get("conditions") or ()}
    for kind, (state, reason, message) in verdict.conditions.items():
        had = before.get(kind) or {}
        since = had.get("lastTransitionTime") if had.get("status") == state else None
        before[kind] = {
            "type": kind, "status": state, "lastTransitionTime": since or now,
            "reason": reason, "message": message,
        }  # fmt: skip
    status["conditions"] = [*before.values()]
    status["acceptedNames"] = dict(verdict.names) or status.get("acceptedNames") or {}
    return {**document, "status": {k: v for k, v in status.items() if v != {}}}
