from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from orch.component.diagnostics.health import CheckFailed
from orch.server.storage import base, etcd, etcd_storage
from orch.server.storage.etcd import EtcdAccess, EtcdClient
from orch.server.storage.etcd_storage import EtcdStorage
from orch.server.storage.health import StorageHealth
from orch.server.storage.mirror import MirroredStorage
from tests.fakes.link import Link
from tests.garbage import is_left_by
from tests.orch.server.storage.contract import Make, StorageContract
from tests.orch.server.storage.etcdserver import EtcdServer, running_etcd

pytestmark = [pytest.mark.real, pytest.mark.seconds(20)]

NUMBERS = itertools.count()


def storage_on(url: str, prefix: str, **access: float) -> EtcdStorage:
    client = EtcdClient(EtcdAccess((url,), **access), observe=lambda *_: None)
    return EtcdStorage(client, prefix)


@pytest.fixture
def prefix() -> str:
    return f"/registry-{next(NUMBERS)}"


@pytest.fixture
def make(etcd: EtcdServer, prefix: str) -> Make:
    return lambda: storage_on(etcd.url, prefix)


@pytest.fixture
async def pair(make: Make) -> AsyncIterator[tuple[base.Storage, base.Storage]]:
    """Two servers' storages in one etcd."""
    one, other = make(), make()
    await one.open()
    await other.open()
    yield one, other
    await one.close()
    await other.close()


class TestContract(StorageContract):
    """On a real etcd."""


async def until(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_watch_on_one_server_shows_what_another_wrote(pair) -> None:
    one, other = pair
    watch = other.watch("/pods/", other.revision)
    first = await one.create("/pods/a/x", b"1")
    second = await one.update("/pods/a/x", b"2", first.revision)
    gone = await one.delete("/pods/a/x")
    changes: list[base.Change] = []
    while len(changes) < 3:
        changes += await watch.changes()
    assert changes == [
        base.Change("/pods/a/x", first.revision, first, None),
        base.Change("/pods/a/x", second.revision, second, first),
        base.Change("/pods/a/x", gone.revision, None, second),
    ]


async def test_a_settled_server_has_read_what_others_wrote(pair) -> None:
    one, other = pair
    for number in range(50):
        written = await one.create(f"/pods/a/{number}", b"1")
        await other.settle()
        assert other.get(written.key) == written


async def test_who_was_refused_sees_what_stood_in_the_way(pair) -> None:
    one, other = pair
    stored = await one.create("/pods/a/x", b"0")
    await other.settle()
    for number in range(20):
        newer = await one.update("/pods/a/x", b"%d" % number, stored.revision)
        with pytest.raises(base.RevisionMismatch) as caught:
            await other.update("/pods/a/x", b"late", stored.revision)
        assert caught.value.current == newer.revision
        assert other.get("/pods/a/x") == newer
        stored = newer
    await one.delete("/pods/a/x")
    with pytest.raises(base.KeyMissing):
        await other.update("/pods/a/x", b"late", stored.revision)
    assert other.get("/pods/a/x") is None


async def test_nothing_is_made_within_what_another_server_changed(pair) -> None:
    one, two = pair
    space = await one.create("/namespaces/a", b"1")
    assert (await two.create("/pods/a/x", b"1", within=space)).data == b"1"
    changed = await one.update("/namespaces/a", b"2", space.revision)
    with pytest.raises(base.RevisionMismatch):
        await two.create("/pods/a/y", b"1", within=space)
    assert two.get("/namespaces/a") == changed, "the next try sees why"
    await one.delete("/namespaces/a")
    with pytest.raises(base.RevisionMismatch):
        await two.create("/pods/a/y", b"1", within=changed)
    assert two.get("/pods/a/y") is None
    with pytest.raises(base.KeyExists):
        await two.create("/pods/a/x", b"1", within=changed)


async def test_of_two_servers_that_write_at_once_no_update_is_lost(pair) -> None:
    async def count_up(storage: base.Storage) -> None:
        done = 0
        while done < 100:
            current = storage.get("/counters/c")
            try:
                await storage.update(
                    "/counters/c", b"%d" % (int(current.data) + 1), current.revision
                )
            except base.RevisionMismatch:
                continue
            done += 1

    one, other = pair
    await one.create("/counters/c", b"0")
    await other.settle()
    await asyncio.gather(count_up(one), count_up(other))
    await one.settle()
    assert one.get("/counters/c").data == b"200"


async def test_a_revision_that_another_server_named_is_reached(pair, monkeypatch) -> None:
    monkeypatch.setattr(etcd_storage, "REACH_TIMEOUT_S", 30.0)
    one, other = pair
    stored = await one.create("/pods/a/x", b"1")
    assert await other.reach(stored.revision)
    assert other.get("/pods/a/x") == stored


async def test_a_revision_that_etcd_has_not_given_is_not_waited_for(pair, monkeypatch) -> None:
    """Each who named one held a seat for three seconds, and left a little memory for good."""
    monkeypatch.setattr(etcd_storage, "REACH_TIMEOUT_S", 60.0)
    async with asyncio.timeout(30.0):
        assert not await pair[0].reach(pair[0].revision + 1000)


async def test_many_objects_are_read_page_by_page_at_start(make: Make, monkeypatch) -> None:
    monkeypatch.setattr(etcd_storage, "PAGE_SIZE", 7)
    storage = make()
    await storage.open()
    keys = [f"/pods/a/{number:03}" for number in range(50)]
    await asyncio.gather(*(storage.create(key, b"1") for key in keys))
    await storage.close()
    again = make()
    await again.open()
    assert [stored.key for stored in again.list("/pods/").items] == keys
    await again.close()


async def test_a_defect_in_following_etcd_is_logged_and_outlived(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    storage = make()
    await storage.open()
    apply, calls = MirroredStorage.apply, []

    def fails_once(mirror: MirroredStorage, changes: Sequence[base.Change]) -> None:
        calls.append(changes)
        if len(calls) == 1:
            raise ZeroDivisionError("a defect")
        apply(mirror, changes)

    monkeypatch.setattr(MirroredStorage, "apply", fails_once)
    kept = await storage.create("/pods/a/x", b"1")
    assert storage.list("/pods/").items == [kept]
    assert "following etcd failed unexpectedly" in caplog.text
    after = await storage.create("/pods/a/y", b"2")
    assert storage.list("/pods/").items == [kept, after]
    await storage.check()
    await storage.close()


async def test_keys_that_are_no_objects_are_left_alone(etcd: EtcdServer, prefix: str) -> None:
    client = EtcdClient(EtcdAccess((etcd.url,)), observe=lambda *_: None)
    client.open()
    for key in (b"/", b"/alone", b"/kind/", b"x/pods/a", b"/pods/\xff\xfe"):
        await client.put(prefix.encode() + key, b"odd", 0)
    storage = storage_on(etcd.url, prefix)
    await storage.open()
    await client.put(prefix.encode() + b"/another", b"odd", 0)
    kept = await storage.create("/pods/a/x", b"1")
    assert storage.list("/pods/").items == [kept]
    await storage.close()
    await client.close()


async def test_an_object_that_etcd_does_not_take_is_refused_as_too_large(make: Make) -> None:
    storage = make()
    await storage.open()
    with pytest.raises(base.ObjectTooLarge):
        await storage.create("/pods/a/x", b"x" * 2_000_000)
    assert storage.get("/pods/a/x") is None
    await storage.close()


async def test_an_etcd_that_is_not_there_is_named_at_start() -> None:
    with pytest.raises(base.StorageUnavailable, match=r"127\.0\.0\.1:1 cannot be reached"):
        await storage_on("http://127.0.0.1:1", "/registry").open()


async def test_while_etcd_is_stopped_reads_go_on_and_writes_say_why_then_all_works() -> None:
    with running_etcd() as server:
        storage = storage_on(server.url, "/registry")
        await storage.open()
        kept = await storage.create("/pods/a/x", b"1")
        watch = storage.watch("/pods/", storage.revision)
        server.stop()
        with pytest.raises(base.StorageFailed, match=f"etcd at {server.url}"):
            await storage.update("/pods/a/x", b"2", kept.revision)
        with pytest.raises(base.StorageUnavailable):
            await storage.check()
        with pytest.raises(base.StorageUnavailable):
            await storage.settle()
        assert storage.get("/pods/a/x") == kept
        server.start()
        await checked(storage)
        newer = await storage.update("/pods/a/x", b"3", kept.revision)
        assert [change.current for change in await watch.changes()] == [newer]
        await storage.close()


async def test_a_check_notices_an_etcd_that_is_full_and_still_answers_reads() -> None:
    with running_etcd("--quota-backend-bytes=131072") as server:
        storage = storage_on(server.url, "/registry")
        await storage.open()
        await storage.check()
        revision = storage.revision
        with pytest.raises(base.StorageFull):
            for number in range(2000):  # etcd counts what it has written, a moment later
                await storage.create(f"/pods/a/{number}", b"x" * 10_000)
        assert storage.revision > revision
        await storage.settle()
        with pytest.raises(base.StorageFull):
            await storage.check()
        await storage.close()


async def test_what_a_call_used_that_failed_is_freed_at_once() -> None:
    """While etcd was away for 30 s, creations of 100 kB took 470 MB of the server."""
    with running_etcd() as server:
        storage = storage_on(server.url, "/registry")
        await storage.open()
        await storage.create("/pods/a/x", b"")
        assert not await is_left_by(lambda: storage.create("/pods/a/x", b""), base.Write)
        assert not await is_left_by(lambda: storage.update("/pods/a/x", b"", 1), base.Write)
        server.stop()
        assert not await is_left_by(lambda: storage.create("/pods/a/y", b""), base.Write)
        await storage.close()


async def test_the_history_of_many_large_writes_does_not_fill_etcd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant filled 2 GiB within minutes, before the first compaction: nobody could write."""
    monkeypatch.setattr(etcd_storage, "HISTORY_BYTES", 2_000_000)
    with running_etcd("--quota-backend-bytes=50000000") as server:
        storage = storage_on(server.url, "/registry")
        await storage.open()
        stored = await storage.create("/pods/a/x", b"")
        for number in range(160):
            stored = await storage.update("/pods/a/x", b"x" * 500_000, stored.revision)
            if number % 4 == 0:
                await storage.check()
                await asyncio.sleep(0.1)  # in which etcd makes room, for a hundred writes in time
        await storage.close()


async def test_while_every_member_is_paused_no_server_is_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(etcd, "CALL_TIMEOUT_S", 0.5)
    with running_etcd() as server:
        members = (server.url, server.url, server.url)
        pair = [
            EtcdStorage(EtcdClient(EtcdAccess(members), observe=lambda *_: None), "/registry")
            for _ in range(2)
        ]
        healths = [StorageHealth(storage) for storage in pair]
        for storage, health in zip(pair, healths, strict=True):
            await storage.open()
            await health.look()
            health.check()
        with server.paused():
            await asyncio.gather(*(health.look() for health in healths))
            for health in healths:
                with pytest.raises(CheckFailed, match="takes no writes"):
                    health.check()
        for storage in pair:
            await checked(storage)
            await storage.close()


async def checked(storage: base.Storage) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await storage.check()
            except base.StorageFailed:
                await asyncio.sleep(0.05)
            else:
                return


async def test_a_partition_is_noticed_and_overcome_without_a_restart(etcd, prefix) -> None:
    link = Link(etcd.port)
    await link.start()
    storage = storage_on(f"http://127.0.0.1:{link.port}", prefix, keepalive_s=5.0)
    beside = storage_on(etcd.url, prefix)
    await storage.open()
    await beside.open()
    kept = await storage.create("/pods/a/x", b"1")
    watch = storage.watch("/pods/", storage.revision)
    with link.black_hole():
        with pytest.raises(base.OutcomeUnknown, match=r"did not answer in time|cannot be reached"):
            await storage.create("/pods/a/y", b"1")
        with pytest.raises(base.StorageUnavailable):
            await storage.check()
        assert storage.get("/pods/a/x") == kept
        missed = await beside.create("/pods/a/z", b"1")
    await checked(storage)
    assert storage.get("/pods/a/z") == missed
    assert missed in [change.current for change in await watch.changes()]
    await storage.create("/pods/a/after", b"1")
    await storage.close()
    await beside.close()
    await link.stop()


async def test_what_was_compacted_while_it_was_cut_off_ends_watches_with_compacted(
    etcd, prefix
) -> None:
    link = Link(etcd.port)
    await link.start()
    storage = storage_on(f"http://127.0.0.1:{link.port}", prefix)
    beside = storage_on(etcd.url, prefix)
    client = EtcdClient(EtcdAccess((etcd.url,)), observe=lambda *_: None)
    client.open()
    await storage.open()
    await beside.open()
    await storage.create("/pods/a/x", b"1")
    start = storage.revision
    watches = [
        storage.watch("/pods/", start),
        storage.watch("/pods/", start, base.Concern("all", "1", lambda stored: "1")),
    ]
    link.refusing = True
    await link.cut()
    await beside.delete("/pods/a/x")
    newest = await beside.create("/pods/a/y", b"2")
    await client.compact(newest.revision)
    link.refusing = False
    await until(lambda: storage.revision >= newest.revision)
    for watch in watches:
        with pytest.raises(base.Compacted):
            await watch.changes()
    with pytest.raises(base.Compacted):
        storage.watch("/pods/", start)
    assert storage.list("/pods/").items == [newest]
    await storage.create("/pods/a/z", b"3")
    await storage.close()
    await beside.close()
    await client.close()
    await link.stop()


async def test_a_round_of_upkeep_never_fails(make: Make) -> None:
    storage = make()
    await storage.open()
    first = await storage.create("/pods/a/x", b"1")
    for number in range(3):
        first = await storage.update("/pods/a/x", b"%d" % number, first.revision)
        await storage.maintain()
    assert storage.get("/pods/a/x") == first
    await storage.close()
    await storage.maintain()  # too late, and says so in the log only
