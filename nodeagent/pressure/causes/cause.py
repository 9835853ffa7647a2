"""A cause of pressure: who, what it does, whom it hurts, and what to do; pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nodeagent.pressure.evidence import Activity, Subject

MACHINE = Subject()


class Cause(NamedTuple):
    """`weight` orders causes: the share of time lost to this one, 0 to 1.

    `kind` is a word for programs, `does` and `next_step` are for people and name no subject.
    `confidence` is 0 to 1.
    """

    resource: str  # cpu, memory, io, process
    kind: str
    culprit: Subject
    suffers: tuple[Subject, ...]
    weight: float
    confidence: float
    does: str
    next_step: str


def sufferers(
    activities: Iterable[Activity], resource: str, culprit: Subject, at_least: float
) -> tuple[Subject, ...]:
    """Who else stalls, the worst first; where nobody does, a culprit hurts itself."""
    lost = [(_lost(a, resource), a.subject) for a in activities if a.subject != culprit]
    found = sorted((pair for pair in lost if pair[0] >= at_least), key=lambda pair: -pair[0])
    return tuple(subject for _, subject in found) or ((culprit,) if culprit != MACHINE else ())


def _lost(activity: Activity, resource: str) -> float:
    return activity.contended if resource == "cpu" else activity.stalls.get(resource, 0.0)


def size(size_bytes: float) -> str:
    """`12 MB`, `3.4 GB`."""
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.{0 if size_bytes >= 10 * unit else 1}f} {name}"
    return f"{size_bytes / 1e3:.0f} kB"


def percent(share: float) -> str:
    return f"{share:.0%}"
