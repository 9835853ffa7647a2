"""Selection: label and field selectors of a list or a watch, over stored objects.

Labels and the kind's selectable fields are parsed from the bytes once per revision and cached
beside them; a reader without selectors never parses anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial

import orjson

from orch.server.objects.document import decode_as, dumps
from orch.server.storage.base import Concern, Stored
from orch.server.strategy.base import Strategy
from orch.wire.errors import bad_request
from orch.wire.selectors import (
    MAX_LENGTH,
    FieldSelector,
    LabelSelector,
    parse_field_selector,
    parse_label_selector,
)

_FEW, _FEW_CHARS = 12, 1024  # labels of an object, characters of its fields
_EVERYTHING_LABELS = LabelSelector()
_EVERYTHING_FIELDS = FieldSelector()


@dataclass(frozen=True, slots=True)
class Selectable:
    """The parts of an object that selectors match, as JSON where they are many or long, since in
    memory they take up to ten times that.
    """

    kept_labels: Mapping[str, str] | bytes
    kept_fields: Mapping[str, str] | bytes

    @property
    def labels(self) -> Mapping[str, str]:
        return _read(self.kept_labels)

    @property
    def fields(self) -> Mapping[str, str]:
        return _read(self.kept_fields)


@dataclass(frozen=True, slots=True)
class Selection:
    """The selectors of one request for a kind."""

    strategy: Strategy
    labels: LabelSelector = field(default_factory=LabelSelector)
    fields: FieldSelector = field(default_factory=FieldSelector)

    @property
    def everything(self) -> bool:
        return not (self.labels.requirements or self.fields.requirements)

    @property
    def terms(self) -> int:
        """How many each object is held against."""
        return len(self.labels.requirements) + len(self.fields.requirements)

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
        # No selector is longer than this, so none matches more, and none matches less of it.
        fields = {
            path: text[: MAX_LENGTH + 1]
            for path, text in strategy.selectable_fields(document).items()
        }
        are_long = sum(map(len, fields.values())) > _FEW_CHARS
        found = Selectable(
            dumps(labels) if len(labels) > _FEW else labels, dumps(fields) if are_long else fields
        )
        stored.memo[form] = found
    return found


def _read(kept: Mapping[str, str] | bytes) -> Mapping[str, str]:
    return _from_json(kept) if isinstance(kept, bytes) else kept


@lru_cache(maxsize=16)  # all watches look at the same object, one after the other
def _from_json(kept: bytes) -> Mapping[str, str]:
    texts: Mapping[str, str] = orjson.loads(kept)
    return texts
