"""A pod as the runtime reports it: its sandboxes and containers with their details; pure values.

`pleg` reads it, the registry stores it, `plan` and `status` use it. The rows of a listing and the
cached details that `pleg` compares them with are here too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nodeagent.runtime.base import (
    Container,
    ContainerDetail,
    ContainerState,
    EventKind,
    Sandbox,
    SandboxDetail,
    SandboxState,
)
from orch.wire import names
from orch.wire.podrules.podspec import DEFAULT_GRACE_S
from orch.wire.records.pods import Pod


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """Sandboxes and containers come newest first (by attempt, then by creation)."""

    uid: str
    namespace: str
    name: str
    sandboxes: tuple[SandboxDetail, ...] = ()
    containers: tuple[ContainerDetail, ...] = ()

    @property
    def sandbox(self) -> SandboxDetail | None:
        """The newest sandbox, in whatever state."""
        return self.sandboxes[0] if self.sandboxes else None

    @property
    def empty(self) -> bool:
        return not self.sandboxes and not self.containers

    @property
    def active(self) -> tuple[ContainerDetail, ...]:
        """Containers that may have a process: running, or in an unknown state."""
        return tuple(c for c in self.containers if is_active(c))

    def instances(self, name: str) -> tuple[ContainerDetail, ...]:
        """Every container created under this name, newest first."""
        return tuple(c for c in self.containers if c.container.name == name)

    def latest(self, name: str) -> ContainerDetail | None:
        return next((c for c in self.containers if c.container.name == name), None)

    def running(self, name: str) -> ContainerDetail | None:
        latest = self.latest(name)
        return latest if latest and latest.container.state is ContainerState.RUNNING else None

    def cgroup_parent(self) -> str:
        """The parent of the newest sandbox's cgroup; "" when the agent did not record it."""
        annotations = self.sandbox.sandbox.annotations if self.sandbox else {}
        return annotations.get(names.RUNTIME_ANNOTATION_CGROUP_PARENT, "")

    def grace_period_s(self) -> int:
        """How long a graceful stop may take, as recorded on the sandbox."""
        for detail in self.sandboxes:
            recorded = detail.sandbox.annotations.get(names.RUNTIME_ANNOTATION_GRACE_PERIOD, "")
            if recorded.isdecimal():
                return int(recorded)
        return DEFAULT_GRACE_S


def observed_pod(
    uid: str, sandboxes: list[SandboxDetail], containers: list[ContainerDetail]
) -> ObservedPod:
    """Sort newest first; the name comes from the labels of the sandboxes, else the containers."""
    by_age = sorted(
        sandboxes, key=lambda d: (d.sandbox.attempt, d.sandbox.created_at_ns), reverse=True
    )
    newest_first = sorted(
        containers, key=lambda d: (d.container.attempt, d.container.created_at_ns), reverse=True
    )
    rows: list[Sandbox | Container] = [d.sandbox for d in by_age]
    rows += [d.container for d in newest_first]
    labels = rows[0].labels if rows else {}
    return ObservedPod(
        uid=uid,
        namespace=labels.get(names.RUNTIME_LABEL_POD_NAMESPACE, ""),
        name=labels.get(names.RUNTIME_LABEL_POD_NAME, ""),
        sandboxes=tuple(by_age),
        containers=tuple(newest_first),
    )


def is_active(detail: ContainerDetail) -> bool:
    return detail.container.state in (ContainerState.RUNNING, ContainerState.UNKNOWN)


def is_ready(detail: SandboxDetail) -> bool:
    return detail.sandbox.state is SandboxState.READY


def recorded_step(detail: ContainerDetail) -> int:
    """The back-off step a container was started with; 0 for a first start."""
    text = detail.container.annotations.get(names.RUNTIME_ANNOTATION_BACKOFF_STEP, "")
    return int(text) if text.isdecimal() else 0


def recorded_hash(detail: ContainerDetail) -> str:
    return detail.container.annotations.get(names.RUNTIME_ANNOTATION_CONTAINER_HASH, "")


@dataclass(frozen=True, slots=True)
class ActiveContainer:
    """A container that may have processes; `pod` is None when no source wants it."""

    id: str
    name: str
    pod: Pod | None


@dataclass
class Rows:
    """One pod's rows of a listing, by id."""

    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)


@dataclass
class Details:
    """The cached details of one pod, by id."""

    sandboxes: dict[str, SandboxDetail] = field(default_factory=dict)
    containers: dict[str, ContainerDetail] = field(default_factory=dict)

    def drop(self, gone: Iterable[str]) -> None:
        for row_id in gone:
            self.sandboxes.pop(row_id, None)
            self.containers.pop(row_id, None)

    def row(self, row_id: str) -> Sandbox | Container | None:
        """The sandbox or container of that id; None when it is not cached."""
        if row_id in self.containers:
            return self.containers[row_id].container
        return self.sandboxes[row_id].sandbox if row_id in self.sandboxes else None


def reflects(row: Sandbox | Container | None, kind: EventKind) -> bool:
    """Whether `row` (None: not cached) already has the state that such an event leads to."""
    if row is None:
        return kind is EventKind.DELETED
    if kind is EventKind.STARTED:
        return row.state is not ContainerState.CREATED
    if kind is EventKind.STOPPED:
        return row.state in (ContainerState.EXITED, SandboxState.NOT_READY)
    return kind is EventKind.CREATED
