from __future__ import annotations

import threading

import pytest

from orch.server import turns
from orch.server.objects.backend import Backend
from orch.server.objects.create import create
from orch.server.objects.delete import delete
from orch.server.objects.list_watch import Page, list_objects, open_watch
from orch.server.objects.options import Continue, DeleteOptions, ListOptions, parse_continue
from orch.server.objects.selection import Selection, parse_selection
from orch.server.storage.base import Past, Snapshot
from orch.server.strategy import pods
from orch.wire.errors import ApiError
from tests.orch.server.objects.places import made, place, pod

ALL = Selection(pods.STRATEGY)


def names(page: Page) -> list[str]:
    return [stored.key.rpartition("/")[2] for stored in page.items]


@pytest.fixture
async def five(backend: Backend) -> Backend:
    for n in range(5):
        labels = {"even": str(n % 2 == 0).lower()}
        await made(backend, "Pod", {**pod(), "metadata": {"name": f"p{n}", "labels": labels}})
    return backend


async def test_a_list_is_everything_selected_at_the_newest_version(five: Backend) -> None:
    page = await list_objects(five, ALL, "", ListOptions())
    assert names(page) == ["p0", "p1", "p2", "p3", "p4"]
    assert (page.revision, page.continuation, page.remaining) == (five.storage.revision, "", None)
    selected = await list_objects(
        five, parse_selection(pods.STRATEGY, "even=true", ""), "", ListOptions()
    )
    assert names(selected) == ["p0", "p2", "p4"]
    assert names(await list_objects(five, ALL, "elsewhere", ListOptions())) == []


async def test_pages_of_a_selection_do_not_count_what_remains(five: Backend) -> None:
    even = parse_selection(pods.STRATEGY, "even=true", "")
    page = await list_objects(five, even, "", ListOptions(limit=2))
    assert names(page) == ["p0", "p2"]
    assert page.remaining is None
    rest = ListOptions(limit=2, continuation=parse_continue(page.continuation))
    last = await list_objects(five, even, "", rest)
    assert (names(last), last.continuation) == (["p4"], "")


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
async def test_pages_show_the_list_as_it_was_when_it_began(five: Backend, limit: int) -> None:
    page = await list_objects(five, ALL, "", ListOptions(limit=limit))
    seen = names(page)
    await delete(five, place("Pod", "p4"), DeleteOptions())
    await made(five, "Pod", {**pod(), "metadata": {"name": "p2-new"}})
    while page.continuation:
        token = parse_continue(page.continuation)
        page = await list_objects(five, ALL, "", ListOptions(limit=limit, continuation=token))
        seen += names(page)
    assert seen == ["p0", "p1", "p2", "p3", "p4"]


async def test_a_page_whose_version_is_forgotten_is_expired(five: Backend) -> None:
    page = await list_objects(five, ALL, "", ListOptions(limit=2))
    await delete(five, place("Pod", "p4"), DeleteOptions())
    five.storage.compact(0)
    token = parse_continue(page.continuation)
    with pytest.raises(ApiError, match="continue parameter is too old") as caught:
        await list_objects(five, ALL, "", ListOptions(continuation=token))
    assert (caught.value.code, caught.value.reason) == (410, "Expired")
    offered = parse_continue(caught.value.to_status()["metadata"]["continue"])
    assert offered == Continue(-1, token.start)
    inconsistent = ListOptions(continuation=offered)
    assert names(await list_objects(five, ALL, "", inconsistent)) == ["p2", "p3"]


async def test_an_exact_version_is_a_look_at_the_past(five: Backend) -> None:
    then = five.storage.revision
    await delete(five, place("Pod", "p0"), DeleteOptions())
    past = await list_objects(five, ALL, "", ListOptions(resource_version=then, exact=True))
    assert (names(past)[0], past.revision) == ("p0", then)
    newer = await list_objects(five, ALL, "", ListOptions(resource_version=then))
    assert names(newer)[0] == "p1"
    five.storage.compact(0)
    with pytest.raises(ApiError) as caught:
        await list_objects(five, ALL, "", ListOptions(resource_version=then, exact=True))
    assert caught.value.code == 410


async def test_a_namespace_has_no_past_from_before_it_was_made_anew(backend: Backend) -> None:
    """Who has rights in it now may have had none in the one that had its name."""
    for name in ("team", "team-2"):
        await made(backend, "Namespace", {"metadata": {"name": name}})
    await create(backend, place("Pod", namespace="team"), pod("old"))
    old = backend.storage.revision
    for key in ("/pods/team/old", "/namespaces/team"):
        await backend.storage.delete(key)
    await made(backend, "Namespace", {"metadata": {"name": "team"}})
    new = backend.storage.revision
    await create(backend, place("Pod", namespace="team"), pod("new"))
    exact = ListOptions(resource_version=old, exact=True)
    for asked in (exact, ListOptions(continuation=Continue(old, "a"))):
        with pytest.raises(ApiError, match=f"team was another one at revision {old}") as refused:
            await list_objects(backend, ALL, "team", asked)
        assert (refused.value.code, refused.value.reason) == (410, "Expired")
    with pytest.raises(ApiError, match="team was another one"):
        await open_watch(backend, ALL, "team", ListOptions(resource_version=old))
    for namespace, shown in (("", ["old"]), ("team-2", [])):
        assert names(await list_objects(backend, ALL, namespace, exact)) == shown
        (await open_watch(backend, ALL, namespace, exact)).watch.close()
    opened = await open_watch(backend, ALL, "team", ListOptions(resource_version=new))
    assert [change.key for change in opened.watch.take()] == ["/pods/team/new"]


async def test_the_past_of_many_objects_is_found_out_beside_the_loop(
    five: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for it with 50,000 objects and as many changes stopped all others for 50 ms."""
    monkeypatch.setattr(turns, "SMALL", 5)
    threads = []
    snapshot = Past.snapshot

    def noted(past: Past) -> Snapshot:
        threads.append(threading.current_thread() is not threading.main_thread())
        return snapshot(past)

    monkeypatch.setattr(Past, "snapshot", noted)
    then = ListOptions(resource_version=five.storage.revision, exact=True)
    await delete(five, place("Pod", "p0"), DeleteOptions())
    assert len(names(await list_objects(five, ALL, "", then))) == 5
    for name in ("p1", "p2", "p3"):
        await delete(five, place("Pod", name), DeleteOptions())
    assert len(names(await list_objects(five, ALL, "", then))) == 5
    assert threads == [False, False]
    await made(five, "Pod", pod())
    assert len(names(await list_objects(five, ALL, "", then))) == 5
    assert threads[2:] == [True]


async def test_a_version_yet_to_come_may_be_asked_for_again(five: Backend) -> None:
    future = ListOptions(resource_version=five.storage.revision + 1)
    with pytest.raises(ApiError) as caught:
        await list_objects(five, ALL, "", future)
    assert (caught.value.code, caught.value.retry_after_s) == (504, 1)
    token = Continue(five.storage.revision + 1, "x")
    with pytest.raises(ApiError):
        await list_objects(five, ALL, "", ListOptions(continuation=token))
