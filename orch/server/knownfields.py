"""The complete field lists of each kind, level by level, for strict field validation.

Made from the records and what they leave out (`orch.wire.unmodelled`). A level that is None is not
looked into: plain values, maps whose keys are anybody's, `status`, which only its own reporters
write, and records that are not known as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orch.wire.kinds import RESOURCES
from orch.wire.meta import WireModel
from orch.wire.shapes import shapes_of
from orch.wire.unmodelled import fields_beyond

Known = Mapping[str, Any]  # field name → Known of the level below, or None


def known_of(model: type[WireModel]) -> Known | None:
    """The fields of a record and of all below it; None when they are not all known."""
    beyond = fields_beyond(model)
    if beyond is None:
        return None
    known: dict[str, Known | None] = dict.fromkeys(beyond)
    for name, shape in shapes_of(model).items():
        below = shape.record
        known[name] = known_of(below) if below and name != "status" else None
    return known


KINDS: Mapping[str, Known] = {
    resource.kind: known for resource in RESOURCES if (known := known_of(resource.model))
}
