"""Which events tell nothing that is not held already."""

from __future__ import annotations

import pytest

from nodeagent.pods.observed import reflects
from nodeagent.runtime.base import (
    Container,
    ContainerState,
    EventKind,
    Sandbox,
    SandboxState,
)


def container(state: ContainerState) -> Container:
    return Container("c", "s", "app", 0, "image", "ref", state, 1)


def sandbox(state: SandboxState) -> Sandbox:
    return Sandbox("s", "web", "default", "uid", 0, state, 1)


CREATED, STARTED, STOPPED, DELETED = EventKind
SHOWN: list[tuple[Sandbox | Container | None, set[EventKind]]] = [
    (None, {DELETED}),
    (container(ContainerState.CREATED), {CREATED}),
    (container(ContainerState.RUNNING), {CREATED, STARTED}),
    (container(ContainerState.UNKNOWN), {CREATED, STARTED}),
    (container(ContainerState.EXITED), {CREATED, STARTED, STOPPED}),
    (sandbox(SandboxState.READY), {CREATED, STARTED}),
    (sandbox(SandboxState.NOT_READY), {CREATED, STARTED, STOPPED}),
]


@pytest.mark.parametrize(("row", "shown"), SHOWN)
def test_an_event_is_news_unless_what_is_held_is_of_after_it(
    row: Sandbox | Container | None, shown: set[EventKind]
) -> None:
    assert {kind for kind in EventKind if reflects(row, kind)} == shown
