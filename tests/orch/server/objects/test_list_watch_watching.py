from __future__ import annotations

import pytest

from orch.server.objects.backend import Backend
from orch.server.objects.document import encode
from orch.server.objects.list_watch import as_event, events_of, open_watch
from orch.server.objects.options import ListOptions
from orch.server.objects.selection import Selection, parse_selection
from orch.server.storage.base import Change, Compacted, Stored
from orch.server.strategy import pods
from orch.wire.errors import ApiError
from tests.orch.server.objects.places import made, pod

MINE = parse_selection(pods.STRATEGY, "mine", "")
ALL = Selection(pods.STRATEGY)


def at(revision: int, *, mine: bool) -> Stored:
    labels = {"mine": "yes"} if mine else {}
    document = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x", "labels": labels}}
    return Stored("/pods/ns/x", revision, encode(document))


OLD, OLD_MINE = at(1, mine=False), at(1, mine=True)
NEW, NEW_MINE = at(2, mine=False), at(2, mine=True)


@pytest.mark.parametrize(
    ("previous", "current", "event"),
    [
        (None, NEW_MINE, ("ADDED", NEW_MINE)),
        (None, NEW, None),
        (OLD, NEW_MINE, ("ADDED", NEW_MINE)),
        (OLD_MINE, NEW_MINE, ("MODIFIED", NEW_MINE)),
        (OLD_MINE, NEW, ("DELETED", OLD_MINE)),
        (OLD, NEW, None),
        (OLD_MINE, None, ("DELETED", OLD_MINE)),
        (OLD, None, None),
    ],
)
def test_a_change_is_seen_through_the_selector(previous, current, event) -> None:
    seen = as_event(Change("/pods/ns/x", 2, current, previous), MINE)
    assert (seen and (seen.type, seen.stored)) == event
    assert seen is None or seen.revision == 2


async def test_without_a_version_what_is_there_is_the_beginning(backend: Backend) -> None:
    await made(backend, "Pod", pod("a"))
    opened = await open_watch(backend, ALL, "default", ListOptions())
    assert [stored.key for stored in opened.initial] == ["/pods/default/a"]
    await made(backend, "Pod", pod("b"))
    events = events_of(opened.watch.take(), ALL)
    assert [event.stored.key for event in events] == ["/pods/default/b"]


async def test_the_beginning_can_be_declined(backend: Backend) -> None:
    await made(backend, "Pod", pod("a"))
    opened = await open_watch(backend, ALL, "", ListOptions(send_initial_events=False))
    assert not opened.initial
    await made(backend, "Pod", pod("b"))
    assert len(events_of(opened.watch.take(), ALL)) == 1


async def test_the_beginning_can_be_asked_for_with_a_version(backend: Backend) -> None:
    await made(backend, "Pod", pod("a"))
    options = ListOptions(send_initial_events=True, resource_version=1)
    assert len((await open_watch(backend, ALL, "", options)).initial) == 1


async def test_changes_that_do_not_concern_the_client_are_no_events(backend: Backend) -> None:
    opened = await open_watch(backend, MINE, "", ListOptions())
    await made(backend, "Pod", pod("a"))
    changes = opened.watch.take()
    assert len(changes) == 1
    assert events_of(changes, MINE) == []


async def test_a_forgotten_version_is_expired_at_the_start_and_on_the_way(backend: Backend) -> None:
    start = backend.storage.revision
    opened = await open_watch(backend, ALL, "", ListOptions(resource_version=start))
    await made(backend, "Pod", pod("a"))
    await made(backend, "Pod", pod("b"))
    backend.storage.compact(1)
    with pytest.raises(ApiError, match="too old resource version"):
        await open_watch(backend, ALL, "", ListOptions(resource_version=start))
    with pytest.raises(Compacted, match="too old resource version"):
        opened.watch.take()


async def test_the_end_of_storage_is_the_end_of_the_watch(backend: Backend) -> None:
    opened = await open_watch(backend, ALL, "", ListOptions())
    backend.storage.end_watches()
    assert opened.watch.take() is None
