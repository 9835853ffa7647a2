"""Which events tell nothing that is not held already, and how containers are found."""

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
from tests.fakes.pods import instance, seen


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


class Counted(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_a_thousand_containers_are_found_without_looking_at_each_for_each() -> None:
    names = [f"c{number}" for number in range(1000)]
    pod = seen(*(instance(name, attempt) for name in names for attempt in (0, 1)))
    for name in names:
        latest, former = pod.instances(Counted(name))
        assert pod.latest(Counted(name)) == latest
        assert (latest.container.attempt, former.container.attempt) == (1, 0)
    assert pod.instances("none") == () and pod.latest("none") is None
    assert Counted.compared < 10 * len(names)
