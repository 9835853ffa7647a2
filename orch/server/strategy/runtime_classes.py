"""RuntimeClasses: names for the handlers of runtimes, and what their pods need besides; pure.

From the reference's pkg/apis/node.
"""

from __future__ import annotations

from collections.abc import Iterator

from orch.server.strategy.base import Document, Strategy
from orch.wire import causes, raw
from orch.wire.errors import Cause
from orch.wire.podrules.placement import label_causes, toleration_causes
from orch.wire.podrules.resources import resource_causes
from orch.wire.records.kinds import RUNTIME_CLASSES
from orch.wire.validation import dns1123_label_problems


def _validate(new: Document, old: Document | None) -> Iterator[Cause]:
    handler = new.get("handler") or ""
    if old is not None and handler != (old.get("handler") or ""):
        yield causes.invalid_value("handler", handler, "field is immutable")
    if old is None:
        yield from causes.invalid_values("handler", handler, dns1123_label_problems(handler))
    fixed = raw.mapping(new, "overhead", "podFixed")
    yield from resource_causes({"limits": fixed}, "overhead")
    scheduling = raw.mapping(new, "scheduling")
    yield from label_causes(raw.mapping(scheduling, "nodeSelector"), "scheduling.nodeSelector")
    yield from toleration_causes(scheduling, "scheduling")


STRATEGY = Strategy(RUNTIME_CLASSES, validate=_validate)
