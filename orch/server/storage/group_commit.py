"""Storage over a local medium: one writer thread that commits what is queued.

The thread owns the medium. It judges each queued write against the newest objects, commits the
batch in one transaction and only then hands the changes to the event loop, which makes them
visible and answers the callers: group commit without a timer, the batch being what waits, as far
as `lines` lets it in. The medium itself (a file, a fake) is behind `Medium`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Sequence
from typing import Protocol

from orch.server.storage.base import (
    Change,
    KeyExists,
    KeyMissing,
    RevisionMismatch,
    StorageError,
    StorageFailed,
    Stored,
    Write,
)
from orch.server.storage.lines import Lines, Queued
from orch.server.storage.mirror import MirroredStorage

log = logging.getLogger(__name__)


def refuse(write: Write, head: int | None) -> StorageError | None:
    """The refusal of a write to an object at revision `head` (None: it does not exist)."""
    if write.expected == 0:
        return None if head is None else KeyExists(write.key)
    if head is None:
        return KeyMissing(write.key)
    if write.expected is not None and write.expected != head:
        return RevisionMismatch(write.key, write.expected, head)
    return None


CHECK_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 10.0  # for a medium that hangs: the program must end when it is told to


class Medium(Protocol):
    """Blocking calls, all from one thread; every failure is a StorageFailed."""

    def open(self) -> tuple[list[Stored], int]:
        """Every object and the revision of the newest write."""

    def commit(self, changes: Sequence[Change], revision: int) -> None:
        """Make the changes and the revision durable, all or nothing."""

    def tidy(self) -> None:
        """What a commit left to do, once its callers have their answers."""

    def close(self) -> None: ...

    def size_bytes(self) -> int:
        """May be called from any thread."""


_Batch = list[Queued]
_Answers = list[tuple[asyncio.Future[Change | None], Change | StorageError | None]]


class GroupCommitStorage(MirroredStorage):
    """`base.Storage` over a medium."""

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        super().__init__()
        self._queue: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._collected: _Batch = []  # by this turn of the loop, not handed to the writer yet
        self._thread: threading.Thread | None = None
        self._writer: _Writer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._written = asyncio.Event()  # the writer has ended

    def size_bytes(self) -> int:
        return self._medium.size_bytes()

    async def create(
        self, key: str, data: bytes, also: Sequence[Write] = (), within: Stored | None = None
    ) -> Stored:
        """There are no other servers."""
        return await self.update(key, data, 0, also)

    async def update(
        self, key: str, data: bytes, expected_revision: int, also: Sequence[Write] = ()
    ) -> Stored:
        change = await self._submit(Write(key, data, expected_revision), *also)
        if change is None or change.current is None:
            raise AssertionError(f"a write of {key} without a new state")
        return change.current

    async def delete(self, key: str, expected_revision: int | None = None) -> Stored:
        change = await self._submit(Write(key, None, expected_revision))
        if change is None or change.previous is None:
            raise AssertionError(f"deletion of {key} without a last state")
        return Stored(key, change.revision, change.previous.data)

    async def check(self) -> None:
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                await self._submit()
        except TimeoutError:
            raise StorageFailed(f"no commit within {CHECK_TIMEOUT_S:g} s") from None

    async def settle(self) -> None:
        """There are no other writers."""

    async def reach(self, revision: int) -> bool:
        return self.revision >= revision

    async def maintain(self) -> None:
        """Nothing to maintain."""

    async def open(self) -> None:
        """Load everything and start the writer; StorageFailed when the medium cannot be used."""
        self._loop = asyncio.get_running_loop()
        items, revision = await asyncio.to_thread(self._medium.open)
        self.load(items, revision)
        self._writer = _Writer(self._medium, items, revision)
        self._written.clear()
        self._thread = threading.Thread(target=self._run, name="storage-writer", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Commit queued writes and close the medium; later writes are StorageFailed.

        A medium that does not take them within `CLOSE_TIMEOUT_S` is left to itself.
        """
        self.end_watches()
        thread, self._thread = self._thread, None
        if thread is not None:
            self._hand_over()
            self._queue.put(None)
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._written.wait()
            except TimeoutError:
                text = "the last writes did not reach the medium within %g s: they may be lost"
                log.error(text, CLOSE_TIMEOUT_S)

    async def _submit(self, *writes: Write) -> Change | None:
        if self._thread is None or self._loop is None:
            raise StorageFailed("storage is not open")
        answer: asyncio.Future[Change | None] = self._loop.create_future()
        if not self._collected:
            self._loop.call_soon(self._hand_over)
        self._collected.append(Queued(writes, answer))
        try:
            return await answer
        finally:
            del answer  # its error holds this frame: the whole request would stay as garbage

    def _hand_over(self) -> None:
        """Once per turn: waking the writer for each write makes the threads wait for each other."""
        collected, self._collected = self._collected, []
        if collected:
            self._queue.put(collected)

    def _run(self) -> None:
        """The writer thread: until None is queued, which `close` puts last."""
        writer, loop = self._writer, self._loop
        if writer is None or loop is None:
            raise AssertionError("the writer thread runs before open")
        lines, open_for_more = Lines(), True
        while open_for_more:
            batch, open_for_more = self._take(lines)
            self._commit(batch, writer, loop)
            del batch  # what its requests use must not wait for the next one
        while lines.waiting:
            self._commit(lines.take(), writer, loop)
        self._medium.close()
        with contextlib.suppress(RuntimeError):  # too late: the loop is closed
            loop.call_soon_threadsafe(self._written.set)

    def _take(self, lines: Lines) -> tuple[_Batch, bool]:
        """The next batch, for which it waits; False after the closing None."""
        received, open_for_more = self._receive(block=not lines.waiting)
        if len(received) == 1 and not lines.waiting:
            return received, open_for_more  # alone: as a renewal mostly is
        for queued in received:
            lines.put(queued)
        return lines.take(), open_for_more

    def _receive(self, *, block: bool) -> tuple[_Batch, bool]:
        """Everything that was handed over; `block` waits for something. False as for `_take`."""
        received: _Batch = []
        with contextlib.suppress(queue.Empty):
            while (collected := self._queue.get(block=block)) is not None:
                received += collected
                block = False
            return received, False
        return received, True

    def _commit(self, batch: _Batch, writer: _Writer, loop: asyncio.AbstractEventLoop) -> None:
        if batch:
            changes, answers = writer.commit(batch)
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._publish, changes, answers)
            try:
                self._medium.tidy()
            except Exception:  # a defect: it must not end the writer
                log.exception("tidying up after a commit failed unexpectedly")

    def _publish(self, changes: Sequence[Change], answers: _Answers) -> None:
        """On the loop: make a committed batch visible, then answer its callers."""
        self.apply(changes)
        for future, outcome in answers:
            if future.done():  # its caller was cancelled
                continue
            if isinstance(outcome, StorageError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


class _Writer:
    """The writer thread's own view: the newest objects, ahead of the mirror by one batch."""

    def __init__(self, medium: Medium, items: Sequence[Stored], revision: int) -> None:
        self._medium = medium
        self._heads = {stored.key: stored for stored in items}
        self._revision = revision

    def commit(self, batch: Sequence[Queued]) -> tuple[list[Change], _Answers]:
        """Judge, commit and answer a batch; a failed commit leaves no trace but its answers.

        A full disk may still have room for changes and deletions: they are tried without the rest.
        """
        start = self._revision
        changes: list[Change] = []
        answers: _Answers = []
        for queued in batch:
            outcome = self._judge(queued.writes)
            if isinstance(outcome, StorageError):
                answers.append((queued.answer, outcome))
                continue
            changes += outcome
            answers.append((queued.answer, next(iter(outcome), None)))
        if not changes and all(queued.writes for queued in batch):
            return changes, answers  # only refusals
        try:
            self._medium.commit(changes, self._revision)
        except Exception as error:  # a defect, too, fails this batch only
            if not isinstance(error, StorageFailed):
                log.exception("committing %d writes failed unexpectedly", len(changes))
            self._undo(changes)
            self._revision = start
            known = type(error) if isinstance(error, StorageFailed) else StorageFailed
            failure = known(str(error))
            others = [queued for queued in batch if not _creates(queued)]
            if not 0 < len(others) < len(batch):
                return [], [(future, failure) for future, _ in answers]
            changes, answers = self.commit(others)
            answers += [(queued.answer, failure) for queued in batch if _creates(queued)]
        return changes, answers

    def _judge(self, writes: Sequence[Write]) -> list[Change] | StorageError:
        """The changes of all of them, or the refusal of one."""
        for position, write in enumerate(writes):
            head = self._heads.get(write.key)
            if position and (head is None or head.revision != write.expected):
                current = 0 if head is None else head.revision
                return RevisionMismatch(write.key, write.expected or 0, current)
            refusal = refuse(write, None if head is None else head.revision)
            if refusal is not None:
                return refusal
        return [self._change(write) for write in writes]

    def _change(self, write: Write) -> Change:
        head = self._heads.get(write.key)
        self._revision += 1
        if write.data is None:
            del self._heads[write.key]
            return Change(write.key, self._revision, None, head)
        current = self._heads[write.key] = Stored(write.key, self._revision, write.data)
        return Change(write.key, self._revision, current, head)

    def _undo(self, changes: Sequence[Change]) -> None:
        for change in reversed(changes):
            if change.previous is None:
                self._heads.pop(change.key, None)
            else:
                self._heads[change.key] = change.previous


def _creates(queued: Queued) -> bool:
    """Whether it needs room for a new object."""
    return any(write.data is not None and not write.expected for write in queued.writes)
