"""Storage in an etcd cluster that several servers share: memory fed by one watch of it.

A write goes to etcd, on the condition that the object is unchanged, and is answered once the watch
has brought it back, so that reads see it. Revisions are etcd's own. A broken watch resumes where it
was; when etcd has compacted that revision, everything is read again and every client's watch ends
with `Compacted`. The calls themselves are in `etcd`.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from orch.component.process import loops
from orch.component.process.loops import Backoff
from orch.component.process.once_log import OnceLog
from orch.server.storage.base import (
    Change,
    Compacted,
    KeyExists,
    KeyMissing,
    OutcomeUnknown,
    RevisionMismatch,
    StorageFailed,
    StorageUnavailable,
    Stored,
    Write,
)
from orch.server.storage.compaction import Compactor
from orch.server.storage.etcd import EtcdClient, EtcdEvent, Outcome, Put
from orch.server.storage.mirror import MirroredStorage

log = logging.getLogger(__name__)


class RevisionWaiters:
    """Callers that wait until memory has reached a revision."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    async def until(self, revision: int) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (revision, next(self._numbers), future))
        await future

    def reached(self, revision: int) -> None:
        while self._queue and self._queue[0][0] <= revision:
            future = heapq.heappop(self._queue)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: StorageFailed) -> None:
        for *_, future in self._queue:
            if not future.done():
                future.set_exception(error)
        self._queue.clear()


class Newest:
    """The medium's newest revision; concurrent callers share one request.

    An answer counts only for callers that asked before the request was sent.
    """

    def __init__(self, ask: Callable[[], Awaitable[int]]) -> None:
        self._question = ask
        self._asking: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None

    async def revision(self) -> int:
        if self._next is None:
            self._next = loops.spawn(self._ask(self._asking), name="newest-revision")
            self._next.add_done_callback(loops.retrieve_error)  # who asked may have left
        return await asyncio.shield(self._next)

    async def _ask(self, before: asyncio.Task[int] | None) -> int:
        if before is not None:
            await asyncio.wait([before])
        del before  # a failed one holds this frame, and that the one before it, without end
        self._asking, self._next = self._next, None
        return await self._question()


SEEN_TIMEOUT_S = 5.0  # for the watch to deliver an answered write
REACH_TIMEOUT_S = 3.0  # the reference waits this long for a revision another server named
PAGE_SIZE = 200  # objects: of 2000 one answer may have a gigabyte, which takes seconds to read
HISTORY_BYTES = 128 * 1024 * 1024  # of former states in etcd, at which it is compacted early


class EtcdStorage(MirroredStorage):
    """`base.Storage` on the keys below `prefix`, which has a leading and no trailing slash;
    `compacts`: it sees to it that etcd's history does not fill etcd.
    """

    def __init__(self, client: EtcdClient, prefix: str, *, compacts: bool = True) -> None:
        self._client = client
        self._prefix = prefix.encode()
        super().__init__()
        self._waiting = RevisionWaiters()
        self._compactor = Compactor(client)
        self._compacts = compacts
        self._written_bytes = 0  # by all servers, since this one's last round of compaction
        self._newest = Newest(client.revision)
        self._follower: asyncio.Task[None] | None = None
        self._trouble = ""  # why the watch is broken; "" while it works
        self._outage = OnceLog(log)
        self._size = 0

    def size_bytes(self) -> int:
        """Of etcd's database, as of the last check."""
        return self._size

    async def open(self) -> None:
        """Read everything below the prefix and follow it; StorageFailed without etcd."""
        self._client.open()
        try:
            items, revision = await self._read_all()
            self.load(items, revision)
            self._size = await self._client.size_bytes()
        except BaseException:
            await self._client.close()
            raise
        self._follower = loops.spawn(self._follow(), name="etcd-watch")

    async def close(self) -> None:
        self.end_watches()
        follower, self._follower = self._follower, None
        if follower is not None:
            await loops.cancel(follower)
        self._waiting.fail(StorageFailed("storage was closed"))
        await self._client.close()

    async def check(self) -> None:
        self._require_open()
        await self._in_step(await self._client.agree(self._prefix + b"check"))
        self._size = await self._client.size_bytes()
        if self._compacts and self._written_bytes > HISTORY_BYTES:
            await self.maintain()

    async def settle(self) -> None:
        self._require_open()
        await self._in_step(await self._newest.revision())

    async def _in_step(self, newest: int) -> None:
        """StorageUnavailable unless memory shows that revision of etcd's."""
        if self._trouble and self.revision < newest:
            raise StorageUnavailable(self._trouble)
        try:
            await self._seen(newest, SEEN_TIMEOUT_S)
        except TimeoutError:
            raise StorageUnavailable(
                f"etcd is at revision {newest}, its watch only at {self.revision}"
            ) from None

    async def reach(self, revision: int) -> bool:
        """Waits for no revision that etcd has not given: callers would fill seats and memory."""
        with contextlib.suppress(TimeoutError, StorageFailed):
            async with asyncio.timeout(REACH_TIMEOUT_S):
                if self.revision < revision <= await self._newest.revision():
                    await self._waiting.until(revision)
        return self.revision >= revision

    async def maintain(self) -> None:
        """Compact etcd to the last round's revision; one of the servers does so."""
        self._written_bytes = 0
        try:
            await self._compactor.round(self.revision)
        except (StorageFailed, Compacted) as error:
            log.warning("cannot compact etcd yet: %s", error)

    async def create(
        self, key: str, data: bytes, also: Sequence[Write] = (), within: Stored | None = None
    ) -> Stored:
        self._require_open()
        return await _whole(self._put(Write(key, data, 0), also, within))

    async def update(
        self, key: str, data: bytes, expected_revision: int, also: Sequence[Write] = ()
    ) -> Stored:
        self._require_open()
        return await _whole(self._put(Write(key, data, expected_revision), also))

    async def delete(self, key: str, expected_revision: int | None = None) -> Stored:
        self._require_open()
        return await _whole(self._delete(key, expected_revision))

    async def _put(
        self, write: Write, also: Sequence[Write], within: Stored | None = None
    ) -> Stored:
        """The object as readers see it, unless it changed again; `expected` 0 creates it."""
        key, expected = write.key, write.expected or 0
        first, *others = (
            Put(self._named(each.key), each.data or b"", each.expected or 0)
            for each in (write, *also)
        )
        unchanged = None if within is None else (self._named(within.key), within.revision)
        outcome = await self._client.put(*first, others, unchanged)
        await self._until_seen(outcome)
        if not outcome.written:
            found = 0 if outcome.found is None else outcome.found.revision
            needed = [each.key for each in (*also, within) if each is not None]
            if needed and found == expected:
                raise RevisionMismatch(needed[0], 0, outcome.revision)
            raise _conflict(key, expected, outcome) if expected else KeyExists(key)
        stored = self.get(key)
        if stored is not None and stored.revision == outcome.revision:
            return stored
        return Stored(key, outcome.revision, first.value)

    async def _delete(self, key: str, expected: int | None) -> Stored:
        outcome = await self._client.delete(self._named(key), expected)
        await self._until_seen(outcome)
        if not outcome.written:
            raise _conflict(key, expected or 0, outcome)
        if outcome.found is None:
            raise AssertionError(f"deletion of {key} without a last state")
        return Stored(key, outcome.revision, outcome.found.value)

    async def _until_seen(self, outcome: Outcome) -> None:
        """Also after a refusal: the caller's next read must see its reason."""
        try:
            await self._seen(outcome.revision, SEEN_TIMEOUT_S)
        except TimeoutError:
            raise OutcomeUnknown(
                f"etcd is at revision {outcome.revision}, but its watch has not shown it within"
                f" {SEEN_TIMEOUT_S:g} s: {self._trouble or 'it is slow'}"
            ) from None

    async def _seen(self, revision: int, timeout_s: float) -> None:
        """Wait until memory has reached `revision`; TimeoutError."""
        if self.revision < revision:
            async with asyncio.timeout(timeout_s):
                await self._waiting.until(revision)

    def _require_open(self) -> None:
        if self._follower is None:
            raise StorageFailed("storage is not open")

    async def _read_all(self) -> tuple[Sequence[Stored], int]:
        """Every object below the prefix at one revision, page by page."""
        items: list[Stored] = []
        start, end = self._prefix + b"/", self._prefix + b"0"  # "0" follows "/"
        revision, more = 0, True
        while more:
            page, now, more = await self._client.page(
                start, end, limit=PAGE_SIZE, revision=revision
            )
            revision = revision or now
            items += [
                Stored(key, entry.revision, entry.value)
                for entry in page
                if (key := self._own(entry.key)) is not None
            ]
            if page:
                start = page[-1].key + b"\0"
        return items, revision

    async def _follow(self) -> None:
        """Keep memory in step with etcd for as long as storage is open."""
        backoff = Backoff(0.1, 2.0, 2.0)
        while True:
            try:
                await self._follow_once(backoff)
            except Compacted:
                log.warning("etcd forgot revision %d: reading everything again", self.revision)
                await self._start_over(backoff)
            except StorageFailed as error:
                text = "the watch of etcd broke at revision %d: %s"
                self._trouble = str(error)
                self._outage.failed(text, self.revision, error, cause=self._trouble)
                await asyncio.sleep(backoff.next())
            except Exception as error:  # else memory would silently fall behind etcd
                log.exception("following etcd failed unexpectedly: reading everything again")
                self._trouble = f"following etcd failed unexpectedly: {error}"
                await asyncio.sleep(backoff.next())
                await self._start_over(backoff)

    async def _follow_once(self, backoff: Backoff) -> None:
        async with contextlib.aclosing(self._client.watch(self.revision + 1)) as batches:
            async for events, newest in batches:
                text = "the watch of etcd goes on from revision %d"
                self._outage.recovered(text, self.revision)
                self._trouble = ""
                backoff.reset()
                if events:
                    self._apply(events)
                elif newest < self.revision:
                    log.error(
                        "etcd went back from revision %d to %d: its data was replaced; reading"
                        " everything again", self.revision, newest,
                    )  # fmt: skip
                    await self._start_over(backoff)
                    return

    async def _start_over(self, backoff: Backoff) -> None:
        """Read everything again, which ends the clients' watches."""
        try:
            items, revision = await self._read_all()
        except (StorageFailed, Compacted) as error:  # compacted between two pages
            self._trouble = f"objects could not be read again: {error}"
            await asyncio.sleep(backoff.next())
            return
        self.reload(items, revision)
        self._waiting.reached(revision)

    def _apply(self, events: Sequence[EtcdEvent]) -> None:
        changes: list[Change] = []
        heads: dict[str, Stored | None] = {}
        for event in events:
            self._written_bytes += len(event.value or b"")
            key = self._own(event.key)
            if key is None:
                continue
            previous = heads[key] if key in heads else self.get(key)
            current = None if event.value is None else Stored(key, event.revision, event.value)
            heads[key] = current
            if current is not None or previous is not None:
                changes.append(Change(key, event.revision, current, previous))
        self.apply(changes)
        self.revision = events[-1].revision
        self._waiting.reached(self.revision)

    def _named(self, key: str) -> bytes:
        return self._prefix + key.encode()

    def _own(self, key: bytes) -> str | None:
        """Storage's key for a key of etcd; None for keys of other things."""
        if not key.startswith(self._prefix):
            return None
        try:
            own = key[len(self._prefix) :].decode()
        except UnicodeDecodeError:
            return None
        slash = own.find("/", 1)
        return own if own.startswith("/") and 1 < slash < len(own) - 1 else None


async def _whole(write: Coroutine[Any, Any, Stored]) -> Stored:
    """Finish a started write even if its caller is cancelled."""
    return await asyncio.shield(loops.spawn(write, name="etcd-write"))


def _conflict(key: str, expected: int, outcome: Outcome) -> KeyMissing | RevisionMismatch:
    if outcome.found is None:
        return KeyMissing(key)
    return RevisionMismatch(key, expected, outcome.found.revision)
