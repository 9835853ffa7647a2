"""What the observer holds of one pod, beside one pod's rows of a listing; no I/O."""

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
