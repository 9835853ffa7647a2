"""The contents of the overview page, as values; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Course(NamedTuple):
    """A number now, and over the last ten minutes: the oldest first, NaN where unknown."""

    now: float
    values: Sequence[float]


class ContainerView(NamedTuple):
    """`state` is running, or why not."""

    name: str
    image: str
    state: str


class PodView(NamedTuple):
    """`status` is a phase or a reason; `stalls` are shares of time by resource, now."""

    namespace: str
    name: str
    status: str
    is_well: bool
    ready: int
    restarts: int
    containers: Sequence[ContainerView]
    cores: Course
    memory_bytes: Course
    stalls: Mapping[str, float]


class CauseView(NamedTuple):
    """Who causes pressure; `since_ns` is None where that is not known."""

    resource: str
    culprit: str
    does: str
    suffers: Sequence[str]
    next_step: str
    since_ns: int | None


class ArchiveView(NamedTuple):
    container: str
    size_bytes: int
    created_ns: int
    note: str


class StoreView(NamedTuple):
    """The newest archives first; `problem` is why there are none to show."""

    archives: Sequence[ArchiveView]
    total: int
    used_bytes: int
    succeeded: int
    failed: int
    problem: str = ""


class CheckView(NamedTuple):
    name: str
    ok: bool


class View(NamedTuple):
    """`stalls` are the machine's, by resource; `store` is None where there are no checkpoints."""

    node_name: str
    version: str
    time_ns: int
    cpus: int
    memory_bytes: int
    cores: Course
    used_bytes: Course
    stalls: Mapping[str, Course]
    causes: Sequence[CauseView]
    pods: Sequence[PodView]
    store: StoreView | None
    checks: Sequence[CheckView]
