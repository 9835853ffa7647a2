"""Log lines against descriptors that take none: real pipes and sockets, full ones."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from orch.component.process import log_queue
from orch.component.process import threads as process_threads
from orch.component.process.log_queue import PIPE_BUF, LogQueue

PATIENCE_S = 60.0


def notice(number: int) -> bytes:
    return b"%d dropped\n" % number


class Pipe:
    """A small one: two pages."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        fcntl.fcntl(self.write_end, fcntl.F_SETPIPE_SZ, 2 * PIPE_BUF)

    def fill(self) -> int:
        """How many bytes it took; by a description of its own, as another program has one."""
        other = os.open(f"/proc/self/fd/{self.write_end}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            return os.write(other, b"." * 3 * PIPE_BUF)
        finally:
            os.close(other)

    def read(self, until: bytes) -> bytes:
        """What comes, up to the first of these words."""
        read = b""
        while until not in read:
            ready, _, _ = select.select([self.read_end], [], [], PATIENCE_S)
            assert ready, read[-1000:]
            read += os.read(self.read_end, 65536)
        return read

    def is_empty(self) -> bool:
        return not select.select([self.read_end], [], [], 0)[0]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    for descriptor in (pipe.read_end, pipe.write_end):
        os.close(descriptor)


def test_a_line_is_written_at_once_and_needs_no_thread(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_threads, "start", None)
    LogQueue(pipe.write_end, notice).write(b"now\n")
    assert os.read(pipe.read_end, 100) == b"now\n"


def test_the_inherited_descriptor_stays_blocking(pipe: Pipe) -> None:
    pipe.fill()
    LogQueue(pipe.write_end, notice).write(b"later\n")
    assert os.get_blocking(pipe.write_end)
    pipe.read(b"later\n")


async def test_the_loop_runs_while_nobody_reads_and_the_order_is_kept(pipe: Pipe) -> None:
    filled = pipe.fill()
    queue = LogQueue(pipe.write_end, notice)
    lines = [b"line %d\n" % n for n in range(1000)]
    for line in lines:
        queue.write(line)
        await asyncio.sleep(0)
    read = await asyncio.to_thread(pipe.read, lines[-1])
    assert read == b"." * filled + b"".join(lines)
    assert queue.dropped == 0


@pytest.mark.parametrize(
    ("line", "kept"),
    [(b"short\n", log_queue.MAX_LINES), (b"%s\n" % (b"x" * 9999), log_queue.MAX_BYTES // 10_000)],
    ids=["lines", "bytes"],
)
def test_what_does_not_fit_is_dropped_counted_and_reported_once(
    pipe: Pipe, line: bytes, kept: int
) -> None:
    filled = pipe.fill()
    queue = LogQueue(pipe.write_end, notice)
    for _ in range(kept + 7):
        queue.write(line)
    assert queue.dropped == 7
    read = pipe.read(b"dropped\n")
    queue.finish(PATIENCE_S)
    queue.write(b"after\n")
    assert read + pipe.read(b"after\n") == b"." * filled + line * kept + b"7 dropped\nafter\n"
    assert queue.dropped == 7


def test_one_line_may_be_longer_than_all_that_may_wait(pipe: Pipe) -> None:
    queue = LogQueue(pipe.write_end, notice)
    line = b"x" * (log_queue.MAX_BYTES + 1) + b"\n"
    queue.write(line)
    assert pipe.read(b"\n") == line


def test_a_socket_that_nobody_reads_does_not_block() -> None:
    ours, journal = socket.socketpair()
    with ours, journal:
        queue = LogQueue(ours.fileno(), notice)
        lines = [b"%d %s\n" % (n, b"x" * 4000) for n in range(300)]
        for line in lines:
            queue.write(line)
        assert queue.dropped > 0
        read = b""
        while b"dropped" not in read:
            read += journal.recv(65536)
        kept = 300 - queue.dropped
        assert read == b"".join(lines[:kept]) + notice(queue.dropped)


class OutdatedPoll:
    """A poll after which another program fills the pipe, so that its result is outdated."""

    def __init__(self, pipe: Pipe) -> None:
        self._poll, self._pipe = select.poll(), pipe
        self.register = self._poll.register
        self.filled = 0

    def poll(self, timeout: int | None = None) -> object:
        ready = self._poll.poll(timeout)
        if ready and not self.filled:
            self.filled = self._pipe.fill()
        return ready


def test_another_program_may_fill_the_pipe_at_the_last_moment(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    outdated = OutdatedPoll(pipe)
    monkeypatch.setattr(select, "poll", lambda: outdated)
    LogQueue(pipe.write_end, notice).write(b"mine\n")
    assert pipe.read(b"mine\n") == b"." * outdated.filled + b"mine\n"


def test_a_line_that_a_finaliser_writes_meanwhile_comes_after(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedPoll(OutdatedPoll):
        def poll(self, timeout: int | None = None) -> object:
            if not self.filled:
                self.filled = 1
                queue.write(b"of the finaliser\n")
            return self._poll.poll(timeout)

    interrupted = InterruptedPoll(pipe)
    monkeypatch.setattr(select, "poll", lambda: interrupted)
    queue = LogQueue(pipe.write_end, notice)
    queue.write(b"first\n")
    assert os.read(pipe.read_end, 100) == b"first\nof the finaliser\n"


def test_without_a_thread_the_next_line_brings_those_before(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_named: object) -> None:
        raise process_threads.NoThreadError

    monkeypatch.setattr(process_threads, "start", refuse)
    filled = pipe.fill()
    queue = LogQueue(pipe.write_end, notice)
    queue.write(b"first\n")
    assert os.read(pipe.read_end, 3 * PIPE_BUF) == b"." * filled
    queue.write(b"second\n")
    assert pipe.read(b"second\n") == b"first\nsecond\n"


def test_without_a_reader_lines_are_gone_and_nothing_is_raised() -> None:
    read_end, write_end = os.pipe()
    queue = LogQueue(write_end, notice)
    os.close(read_end)
    queue.write(b"into the void\n")
    assert queue.dropped == 1
    os.close(write_end)


def test_lines_that_a_full_disk_refuses_are_counted() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    queue = LogQueue(descriptor, notice)
    for _ in range(3):
        queue.write(b"of two\nlines\n")
    assert queue.dropped == 3
    os.close(descriptor)


def test_lines_that_waited_for_a_reader_who_then_left_are_counted_one_by_one() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    os.write(write_end, b"." * 1024 * 1024)
    queue = LogQueue(write_end, notice)
    for _ in range(3):
        queue.write(b"waiting\n")
    assert queue.dropped == 0
    os.close(read_end)
    queue.finish(PATIENCE_S)
    assert queue.dropped == 3
    os.close(write_end)


def test_lines_of_many_threads_each_come_in_order_and_all_are_accounted_for(pipe: Pipe) -> None:
    queue = LogQueue(pipe.write_end, notice)
    number = 8000

    def write(name: int) -> None:
        for n in range(number):
            queue.write(b"%d %d\n" % (name, n))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    read = os.read(pipe.read_end, 3 * PIPE_BUF)
    for thread in threads:
        thread.join()
    queue.write(b"end\n")
    read += pipe.read(b"dropped\n")
    lines = read.splitlines()
    assert lines.pop() == b"%d dropped" % queue.dropped
    assert queue.dropped + len(lines) == 4 * number + 1
    for name in (b"0", b"1", b"2", b"3"):
        numbers = [int(line.split()[1]) for line in lines if line.startswith(name + b" ")]
        assert numbers == list(range(len(numbers)))


def test_the_end_waits_for_what_is_being_read(pipe: Pipe) -> None:
    pipe.fill()
    queue = LogQueue(pipe.write_end, notice)
    queue.write(b"last\n")
    reader = threading.Thread(target=pipe.read, args=(b"last\n",))
    reader.start()
    queue.finish(PATIENCE_S)
    reader.join()
    assert pipe.is_empty()


def test_the_end_waits_no_longer_than_it_may(pipe: Pipe) -> None:
    filled = pipe.fill()
    queue = LogQueue(pipe.write_end, notice)
    queue.write(b"unread\n")
    queue.finish(0.05)
    assert pipe.read(b"unread\n") == b"." * filled + b"unread\n"


def test_a_final_line_is_written_or_given_up(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queue, "FINAL_WRITE_S", 0.05)
    log_queue.write_final(pipe.write_end, b"heard\n")
    assert os.read(pipe.read_end, 100) == b"heard\n"
    filled = pipe.fill()
    log_queue.write_final(pipe.write_end, b"unheard\n")
    assert os.read(pipe.read_end, 3 * PIPE_BUF) == b"." * filled
    assert pipe.is_empty()


PROGRAM = """
import logging, os, sys
from orch.component.process import daemon, log

async def main(stop):
    if sys.argv[1] == "refuses":
        raise daemon.SetupError("no such file")
    for number in range(10_000):
        logging.getLogger("x").info("line %d", number)
    if sys.argv[1] == "ends at once":
        daemon.exit_now("ending at once")
    stop.set("done")

log.configure()
sys.exit(daemon.run_daemon(main, name="x"))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("what", "code"), [("refuses", 1), ("ends at once", 1), ("stops", 0)])
def test_a_log_that_nobody_reads_does_not_hold_up_the_exit(
    pipe: Pipe, what: str, code: int
) -> None:
    filled = pipe.fill()
    began_s = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", PROGRAM, what], stderr=pipe.write_end) as process:
        assert process.wait(PATIENCE_S) == code
    assert time.monotonic() - began_s < PATIENCE_S / 2
    assert os.read(pipe.read_end, 3 * PIPE_BUF) == b"." * filled
