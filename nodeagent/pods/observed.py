"""A pod as the runtime holds it: its sandboxes and containers with their details; pure values.

Read by `pleg`, kept in the registry, acted upon by `plan` and shown by `status`. Here too are the
rows of a listing and the details beside which `pleg` lays them.
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
        """Containers that may have a process: running, or in a state nobody knows."""
        return tuple(c for c in self.containers if is_active(c))

    def instances(self, name: str) -> tuple[ContainerDetail, ...]:
        """Every container made for this name, newest first."""
        return tuple(c for c in self.containers if c.container.name == name)

    def latest(self, name: str) -> ContainerDetail | None:
        return next((c for c in self.containers if c.container.name == name), None)

    def running(self, name: str) -> ContainerDetail | None:
        latest = self.latest(name)
        return latest if latest and latest.container.state is ContainerState.RUNNING else None

    def cgroup_parent(self) -> str:
        """Where the newest sandbox's cgroups are; "" when an agent made it that recorded none."""
        annotations = self.sandbox.sandbox.annotations if self.sandbox else {}
        return annotations.get(names.RUNTIME_ANNOTATION_CGROUP_PARENT, "")

    def grace_period_s(self) -> int:
        """How long a graceful stop may take, by the record kept on the sandbox."""
        for detail in self.sandboxes:
            recorded = detail.sandbox.annotations.get(names.RUNTIME_ANNOTATION_GRACE_PERIOD, "")
            if recorded.isdecimal():
                return int(recorded)
        return DEFAULT_GRACE_S


def observed_pod(
    uid: str, sandboxes: list[SandboxDetail], containers: list[ContainerDetail]
) -> ObservedPod:
    """Put what was read in order; the names come from the sandboxes, or the containers' labels."""
    by_age = sorted(
        sandboxes, key=lambda d: (d.sandbox.attempt, d.sandbox.created_at_ns), reverse=True
    )
    newest_first = sorted(
        containers, key=lambda d: (d.container.attempt, d.container.created_at_ns), reverse=True
    )
    labels = (
        by_age[0].sandbox.labels
        if by_age
        else newest_first[0].container.labels
        if newest_first
        else {}
    )
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
    """A container that has processes, or may have; `pod` is None when no source asks for it."""

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
    """What is held of one pod, by id."""

    sandboxes: dict[str, SandboxDetail] = field(default_factory=dict)
    containers: dict[str, ContainerDetail] = field(default_factory=dict)

    def drop(self, gone: Iterable[str]) -> None:
        for one in gone:
            self.sandboxes.pop(one, None)
            self.containers.pop(one, None)

    def row(self, one: str) -> Sandbox | Container | None:
        """The sandbox or container of that id; None when it is not held."""
        if one in self.containers:
            return self.containers[one].container
        return self.sandboxes[one].sandbox if one in self.sandboxes else None


def shows(row: Sandbox | Container | None, kind: EventKind) -> bool:
    """Whether `row`, None for nothing held, is already what such an event leaves behind."""
    if row is None:
        return kind is EventKind.DELETED
    if kind is EventKind.STARTED:
        return row.state is not ContainerState.CREATED
    if kind is EventKind.STOPPED:
        return row.state in (ContainerState.EXITED, SandboxState.NOT_READY)
    return kind is EventKind.CREATED
