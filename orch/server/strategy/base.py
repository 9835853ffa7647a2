"""The differences between kinds, as one record of functions; all pure, each kind in its own file.

The functions that prepare a document change the one they are given: it belongs to the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from orch.wire.errors import Cause
from orch.wire.managed.field_sets import NOTHING, FieldSet
from orch.wire.managed.kinds import type_of
from orch.wire.managed.ownership import Filter
from orch.wire.managed.typed import Type
from orch.wire.records.kinds import Resource
from orch.wire.tables import columns
from orch.wire.tables.layout import Layout
from orch.wire.validation import dns1123_subdomain_problems

Document = dict[str, Any]

METADATA_FIELDS = ("metadata.name", "metadata.namespace")


def _store_as_sent(*_documents: Document) -> None:
    """Most kinds need no preparation."""


def _no_causes(_new: Document, _old: Document | None) -> Iterable[Cause]:
    return ()


def _no_grace(_document: Document, _asked_s: int | None) -> int:
    return 0


def text_at(document: Any, path: str) -> str:
    """A selectable field as text: booleans as true/false, missing fields as ""."""
    for part in path.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    if document is None:
        return ""
    return str(document).lower() if isinstance(document, bool) else str(document)


@dataclass(frozen=True)
class Strategy:
    """The rules of one kind.

    `paths` are the fields it can be selected by, besides name and namespace; `aliases` are other
    names for them; by `watched_by` many clients watch a few objects each. `grace_s` is the time
    from a deletion to the removal (0: none), given the document and the requested period.
    `returns_deleted`: the answer to a deletion is the object, not a Status. `parts` are
    subresources that change a part of the object by rules of their own; `owned` leaves of a set of
    fields those that such a part sets. A write of the status sets none of `kept_by_status`. Where
    not `records_managers`, who set which field is recorded only for those who name themselves.
    `merged_as`, `shown_as` and `unknown_fields` replace what is made from the record. Where not
    `is_patched_by_keys`, it has no merge keys for strategic merge patches. `is_costly`: its rules
    take long, however small the object is. `qualifies_finalizers`: those that are not standard have
    a domain before a slash. `deprecation` is what clients are warned of with every answer, "" for
    a version that is not deprecated.
    """

    resource: Resource
    paths: tuple[str, ...] = ()
    watched_by: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    name_problems: Callable[[str], Sequence[str]] = dns1123_subdomain_problems
    prepare_create: Callable[[Document], None] = _store_as_sent
    prepare_update: Callable[[Document, Document], None] = _store_as_sent
    prepare_status: Callable[[Document, Document], None] = _store_as_sent
    validate: Callable[[Document, Document | None], Iterable[Cause]] = _no_causes
    grace_s: Callable[[Document, int | None], int] = _no_grace
    returns_deleted: bool = False
    parts: Mapping[str, Strategy] = field(default_factory=dict)
    owned: Filter | None = None
    kept_by_status: FieldSet = field(default_factory=lambda: {"f:spec": NOTHING})
    records_managers: bool = True
    merged_as: Type | None = None
    shown_as: Layout | None = None
    unknown_fields: Callable[[Document], list[str]] | None = None
    is_patched_by_keys: bool = True
    is_costly: bool = False
    qualifies_finalizers: bool = True
    deprecation: str = ""

    @property
    def type(self) -> Type:
        """How apply merges its objects."""
        return self.merged_as or type_of(self.resource.model)

    @cached_property
    def layout(self) -> Layout:
        """How its objects are shown as a table."""
        return self.shown_as or columns.layout_of(self.resource.kind)

    @property
    def field_names(self) -> frozenset[str]:
        scope = METADATA_FIELDS if self.resource.namespaced else METADATA_FIELDS[:1]
        return frozenset((*scope, *self.paths, *self.aliases))

    def selectable_fields(self, document: Document) -> dict[str, str]:
        """Every field the kind can be selected by, as text."""
        fields = {
            path: text_at(document, path) or self.defaults.get(path, "")
            for path in (*METADATA_FIELDS, *self.paths)
        }
        for alias, path in self.aliases.items():
            fields[alias] = fields[path]
        return fields


def keep(new: Document, old: Document, field_name: str) -> None:
    """Restore the stored value of a top-level field."""
    if field_name in old:
        new[field_name] = old[field_name]
    else:
        new.pop(field_name, None)


def keep_spec(new: Document, old: Document) -> None:
    """A change of the status leaves the rest as it is."""
    keep(new, old, "spec")


def keep_status(new: Document, old: Document) -> None:
    """Only a change of the status changes the status."""
    keep(new, old, "status")
