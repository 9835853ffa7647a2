"""Selection: label and field selectors of a list or a watch, over stored objects.

Labels and the kind's selectable fields are parsed from the bytes once per revision and cached
beside them; a reader without selectors never parses anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial

import orjson

from orch.server.objects.document import decode_as
from orch.server.storage.base import Concern, Stored
from orch.server.strategy.base import Strategy
from orch.wire.errors import bad_request
from orch.wire.selectors import (
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)

_FEW = 12  # labels of an object
_EVERYTHING_LABELS = LabelSelector()
_EVERYTHING_FIELDS = FieldSelector()


@dataclass(frozen=True, slots=True)
class Selectable:
    """The parts of an object that selectors match. `kept`: the labels, as JSON where they are many,
    since in memory they take ten times that.
    """

    kept: Mapping[str, str] | bytes
    fields: Mapping[str, str]

    @property
    def labels(self) -> Mapping[str, str]:
        return _read_labels(self.kept) if isinstance(self.kept, bytes) else self.kept


@dataclass(frozen=True, slots=True)
class Selection:
    """The selectors of one request for a kind."""

    strategy: Strategy
    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)

    @property
    def everything(self) -> bool:
        return not (self.labels.requirements or self.fields.requirements)

    def matches(self, stored: Stored) -> bool:
        if self.everything:
            return True
        seen = selectable(self.strategy, stored)
        if self.labels.requirements and not self.labels.matches(seen.labels):
            return False
        return self.fields.matches(lambda path: seen.fields.get(path, ""))


def concern_of(selection: Selection) -> Concern | None:
    """The concern of a watch with this selection, if it is about one name or one node."""
    name = selection.fields.exact("metadata.name")
    if name is not None:
        return Concern("metadata.name", name, _name_of)
    for path in selection.strategy.watched_by:
        value = selection.fields.exact(path)
        if value is not None:
            return Concern(path, value, partial(_field_of, selection.strategy, path))
    return None


def _name_of(stored: Stored) -> str:
    return stored.key.rpartition("/")[2]


def _field_of(strategy: Strategy, path: str, stored: Stored) -> str:
    return selectable(strategy, stored).fields[path]


def parse_selection(strategy: Strategy, label_text: str, field_text: str) -> Selection:
    """ApiError 400 for an invalid selector, and for a field that the kind cannot be selected by."""
    try:
        labels = parse_label_selector(label_text) if label_text else _EVERYTHING_LABELS
        fields = parse_field_selector(field_text) if field_text else _EVERYTHING_FIELDS
    except ValueError as error:
        raise bad_request(str(error)) from None
    known = strategy.field_names
    for requirement in fields.requirements:
        if requirement.path not in known:
            raise bad_request(
                f"field label not supported: {requirement.path};"
                f" {strategy.resource.plural} can be selected by {', '.join(sorted(known))}"
            )
    return Selection(strategy, labels, fields)


def selectable(strategy: Strategy, stored: Stored) -> Selectable:
    """Labels and selectable fields of an object, derived once per revision."""
    resource = strategy.resource
    form = resource.api_version if resource.stored_form else "selectable"
    found: Selectable | None = stored.memo.get(form)
    if found is None:
        document = (
            decode_as(resource, stored) if resource.stored_form else orjson.loads(stored.data)
        )
        labels = document["metadata"].get("labels") or {}
        kept: Mapping[str, str] | bytes = labels
        if len(labels) > _FEW:
            kept = bytes(memoryview(orjson.dumps(labels)))  # which has room for half a megabyte
        found = Selectable(kept, strategy.selectable_fields(document))
        stored.memo[form] = found
    return found


@lru_cache(maxsize=16)  # all watches look at the same object, one after the other
def _read_labels(kept: bytes) -> Mapping[str, str]:
    labels: Mapping[str, str] = orjson.loads(kept)
    return labels
