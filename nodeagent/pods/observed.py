"""A pod as the runtime reports it: its sandboxes and containers with their details; pure values.

`pleg` reads it, the registry stores it, `plan` and `status` use it.
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
    _by_name: dict[str, list[ContainerDetail]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for detail in self.containers:  # a pod may have a thousand, each asked for in each round
            self._by_name.setdefault(detail.container.name, []).append(detail)

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
        return tuple(self._by_name.get(name, ()))

    def latest(self, name: str) -> ContainerDetail | None:
        return next(iter(self._by_name.get(name, ())), None)

    def running(self, name: str) -> ContainerDetail | None:
        latest = self.latest(name)
        return latest if latest and latest.container.state is ContainerState.RUNNING else None

    def is_initialized(self, pod: Pod) -> bool:
        """Whether a main container has been created in the newest sandbox."""
        mains = {container.name for container in pod.spec.containers}
        sandbox_id = self.sandbox.sandbox.id if self.sandbox else ""
        here = (c.container.name for c in self.containers if c.container.sandbox_id == sandbox_id)
        return not mains.isdisjoint(here)

    def address(self, default: str = "") -> str:
        """The pod's first IP address; `default` for a pod in the host's network."""
        return self.sandbox.ips[0] if self.sandbox and self.sandbox.ips else default

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


Row = Sandbox | Container  # of a listing
Detail = SandboxDetail | ContainerDetail


def row_of(detail: Detail) -> Row:
    return detail.sandbox if isinstance(detail, SandboxDetail) else detail.container


def observed_pod(uid: str, details: Iterable[Detail]) -> ObservedPod:
    """Sort newest first; the name comes from the labels of the sandboxes, else the containers."""
    by_age = sorted(details, key=_age, reverse=True)
    sandboxes = tuple(d for d in by_age if isinstance(d, SandboxDetail))
    containers = tuple(d for d in by_age if isinstance(d, ContainerDetail))
    in_order: tuple[Detail, ...] = (*sandboxes, *containers)
    labels = next((row_of(detail).labels for detail in in_order), {})
    return ObservedPod(
        uid=uid,
        namespace=labels.get(names.RUNTIME_LABEL_POD_NAMESPACE, ""),
        name=labels.get(names.RUNTIME_LABEL_POD_NAME, ""),
        sandboxes=sandboxes,
        containers=containers,
    )


def _age(detail: Detail) -> tuple[int, int]:
    row = row_of(detail)
    return row.attempt, row.created_at_ns


def is_active(detail: ContainerDetail) -> bool:
    return detail.container.state in (ContainerState.RUNNING, ContainerState.UNKNOWN)


def is_ready(detail: SandboxDetail) -> bool:
    return detail.sandbox.state is SandboxState.READY


def recorded_step(detail: ContainerDetail) -> int:
    """The back-off step a container was started with; 0 for a first start."""
    text = detail.container.annotations.get(names.RUNTIME_ANNOTATION_BACKOFF_STEP, "")
    return int(text) if text.isdecimal() else 0


def recorded_hash(detail: ContainerDetail) -> str:
    """The hash of the definition that a container was created from."""
    return _definition(detail).partition("/")[0]


def recorded_size(detail: ContainerDetail) -> str:
    """The size that a container was created with; "" for one of an agent that could not resize."""
    return _definition(detail).partition("/")[2]


def recorded_pod_size(detail: SandboxDetail) -> str:
    """The size of the pod that a sandbox was created with; "" for one of such an agent."""
    return detail.sandbox.annotations.get(names.RUNTIME_ANNOTATION_POD_SIZE, "")


def _definition(detail: ContainerDetail) -> str:
    annotations = detail.container.annotations
    former = annotations.get(names.RUNTIME_ANNOTATION_FORMER_HASH, "")
    return annotations.get(names.RUNTIME_ANNOTATION_CONTAINER_HASH, former)


@dataclass(frozen=True, slots=True)
class ActiveContainer:
    """A container that may have processes; `pod` is None when no source wants it."""

    id: str
    name: str
    pod: Pod | None


def reflects(row: Row | None, kind: EventKind) -> bool:
    """Whether `row` (None: not cached) already has the state that such an event leads to."""
    if row is None:
        return kind is EventKind.DELETED
    if kind is EventKind.STARTED:
        return row.state is not ContainerState.CREATED
    if kind is EventKind.STOPPED:
        return row.state in (ContainerState.EXITED, SandboxState.NOT_READY)
    return kind is EventKind.CREATED
