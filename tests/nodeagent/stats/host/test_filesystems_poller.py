"""File systems that answer, and one that hangs: nothing waits for it but a thread of its own."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeagent.stats.host.filesystems import MAX_HANGING, FilesystemPoller
from nodeagent.stats.samples import FsSample
from orch.component.process import threads
from tests.fakes.hosts import Clock


class Server:
    """Answers for every path, but for those in `away` only once they are let go."""

    def __init__(self) -> None:
        self.away: dict[str, threading.Event] = {}
        self.asked: list[str] = []

    def ask(self, path: str, time_ns: int) -> FsSample | None:
        self.asked.append(path)
        if path in self.away:
            self.away[path].wait(60)
        return FsSample(time_ns, capacity_bytes=len(path))

    def leave(self, path: str) -> None:
        self.away[path] = threading.Event()

    def come_back(self, path: str) -> None:
        self.away.pop(path).set()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    for path in tuple(server.away):
        server.come_back(path)


def mounts_of(server: Server, clock: Clock) -> FilesystemPoller:
    return FilesystemPoller(budget_s=3, query=server.ask, wall_ns=clock)


def wait_until_back(mounts: FilesystemPoller) -> None:
    deadline = time.monotonic() + 30
    while mounts.hanging and time.monotonic() < deadline:
        time.sleep(0.005)


def test_every_file_system_is_queried_and_the_others_are_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    mounts = FilesystemPoller(wall_ns=clock, budget_s=30)
    mounts.refresh([str(tmp_path), str(tmp_path / "gone"), str(tmp_path)])
    first = mounts.latest(str(tmp_path))
    assert first and first.time_ns == clock.now_ns and first.capacity_bytes
    assert mounts.latest(str(tmp_path / "gone")) is None
    mounts.refresh([])
    assert mounts.latest(str(tmp_path)) is None


@pytest.mark.slow
def test_a_hanging_file_system_keeps_its_last_value_and_delays_a_single_pass(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    mounts = mounts_of(server, clock)
    mounts.refresh(["/a", "/nfs", "/z"])
    first_ns = clock.now_ns
    server.leave("/nfs")
    for _ in range(3):
        clock.advance(10)
        mounts.refresh(["/a", "/nfs", "/z"])
    assert mounts.hanging == {"/nfs"}
    assert server.asked.count("/nfs") == 2, "it is left alone until it has answered"
    stamps = [mounts.latest(path) for path in ("/a", "/nfs", "/z")]
    assert [value and value.time_ns for value in stamps] == [clock.now_ns, first_ns, clock.now_ns]
    assert caplog.text.count("does not answer") == 1

    server.come_back("/nfs")
    wait_until_back(mounts)
    clock.advance(10)
    mounts.refresh(["/a", "/nfs", "/z"])
    value = mounts.latest("/nfs")
    assert value and value.time_ns == clock.now_ns


def test_hanging_mounts_hold_a_bounded_number_of_threads(
    server: Server,
) -> None:
    paths = [f"/nfs/{number}" for number in range(MAX_HANGING + 5)]
    for path in paths:
        server.leave(path)
    mounts = FilesystemPoller(budget_s=0.01, query=server.ask, wall_ns=Clock())
    before = threading.active_count()
    deadline = time.monotonic() + 30
    while len(mounts.hanging) < MAX_HANGING and time.monotonic() < deadline:
        mounts.refresh(paths)
    for _ in range(5):
        mounts.refresh(paths)
    assert len(mounts.hanging) == MAX_HANGING
    assert threading.active_count() - before <= MAX_HANGING + 1
    for path in paths:
        server.come_back(path)
    wait_until_back(mounts)
    assert not mounts.hanging


def test_without_a_thread_the_last_values_remain_and_it_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_thread(*arguments: object, **more: object) -> None:
        raise threads.NoThreadError(errno.EAGAIN, "no thread can be started")

    clock = Clock()
    mounts = FilesystemPoller(wall_ns=clock, budget_s=30)
    mounts.refresh([str(tmp_path)])
    known = mounts.latest(str(tmp_path))
    clock.advance(10)
    with monkeypatch.context() as patched:
        patched.setattr(threads, "start", no_thread)
        mounts.refresh([str(tmp_path)])
        mounts.refresh([str(tmp_path)])
    assert known and mounts.latest(str(tmp_path)) is known
    assert len(caplog.messages) == 1 and "no thread can be started" in caplog.text
    mounts.refresh([str(tmp_path)])
    found = mounts.latest(str(tmp_path))
    assert found and found.time_ns == clock.now_ns
