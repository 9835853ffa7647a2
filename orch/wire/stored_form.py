"""A kind whose objects are stored as those of another, with other names for some fields; pure.

Only the names at the top differ, so that each object has one form under each name. A field that
has another name in the other form does not exist under its own there, and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
_ENTRY = "f:"  # before the names of fields in `managedFields`


@dataclass(frozen=True, slots=True)
class StoredForm:
    """`qualified` and `api_version` are those of the kind that is stored; `names` are its names of
    the fields that have another here, by the names here.
    """

    qualified: str
    api_version: str
    names: Mapping[str, str]

    def to_stored(self, document: Document, own_version: str) -> Document:
        """A given object as it is stored."""
        return _converted(document, self.names, own_version, self.api_version)

    def from_stored(self, document: Document, own_version: str) -> Document:
        """A stored object as it is here."""
        names = {theirs: own for own, theirs in self.names.items()}
        return _converted(document, names, self.api_version, own_version)


def _converted(document: Document, names: Mapping[str, str], before: str, after: str) -> Document:
    converted = {**_renamed(document, names), "apiVersion": after}
    metadata = converted.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("managedFields"), list):
        entries = [_entry(each, names, before, after) for each in metadata["managedFields"]]
        converted["metadata"] = {**metadata, "managedFields": entries}
    return converted


def _renamed(record: Mapping[str, Any], names: Mapping[str, str], prefix: str = "") -> Document:
    renamed = {f"{prefix}{name}": f"{prefix}{other}" for name, other in names.items()}
    gone = set(renamed.values()) - renamed.keys()
    return {renamed.get(name, name): value for name, value in record.items() if name not in gone}


def _entry(entry: Any, names: Mapping[str, str], before: str, after: str) -> Any:
    """Who set which fields, under the new names."""
    if not isinstance(entry, dict) or entry.get("apiVersion") != before:
        return entry
    fields = entry.get("fieldsV1")
    if isinstance(fields, dict):
        entry = {**entry, "fieldsV1": _renamed(fields, names, _ENTRY)}
    return {**entry, "apiVersion": after}
