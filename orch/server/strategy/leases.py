"""Leases: a holder that renews in time; pure."""

from __future__ import annotations

from collections.abc import Iterator

from orch.server import fieldcauses as causes
from orch.server.strategy.base import Document, Strategy
from orch.wire.errors import Cause
from orch.wire.kinds import LEASES
from orch.wire.times import parse_time


def _validate(new: Document, _old: Document | None) -> list[Cause]:
    return list(_spec_causes(new.get("spec") or {}))


def _spec_causes(spec: Document) -> Iterator[Cause]:
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield causes.invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        yield causes.invalid_value(
            "spec.leaseTransitions", transitions, "must be greater than or equal to 0"
        )
    for name in ("acquireTime", "renewTime"):
        moment = spec.get(name)
        if moment is not None and not _is_time(moment):
            yield causes.invalid_value(f"spec.{name}", moment, "must be an RFC 3339 time")


def _is_time(text: str) -> bool:
    try:
        parse_time(text)
    except ValueError:
        return False
    return True


STRATEGY = Strategy(LEASES, validate=_validate)
