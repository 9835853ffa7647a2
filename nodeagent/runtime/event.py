"""What a runtime tells by itself: that a container or a sandbox changed; pure values.

An event says that it is worth looking, not what is there: events may come late, twice or not at
all, and states are always read. `base` hands them out under its own name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class EventKind(Enum):
    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """`id` is a container's or a sandbox's."""

    id: str
    kind: EventKind
    at_ns: int  # since the epoch
