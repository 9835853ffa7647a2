"""Fixtures for every test: nothing left running, nothing that blocks, ports, keys and certificates.

`no_leaked_tasks` and `no_blocking` guard every coroutine test by themselves; a test marked
`may_block` is spared the second. The others are asked for by name. Under pytest-xdist the tests of
a file stay together on one worker. The files that take longest, most of which wait, begin in the
order of their length, and those that compute come between them.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc.aio
import hypothesis
import pytest
import pytest_asyncio
import trustme
from xdist.scheduler import LoadFileScheduling

from tests import blocking
from tests.conftest_runtime import real_runtime as real_runtime
from tests.fakes import ports

_LEAVING_S = 2.0  # connections just closed and threads just left end within a few turns of the loop
_LONG_UNTIL = 0.9  # of the run: no worker is alone with a long file at its end
_SKIPPED = 6  # an exit status of no other meaning to pytest: asking again would not help

# How long an example takes says more of the machine than of the code.
hypothesis.settings.register_profile("any machine", deadline=None, max_examples=50)
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10)
hypothesis.settings.load_profile("any machine")


def pytest_sessionstart() -> None:
    # A worker of xdist ignores the one and sets the others, and so would every program it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("COLUMNS", None)
    os.environ.pop("LINES", None)
    # gRPC's thread stays to the end: who drops the last channel would wait for it, in the loop, and
    # garbage collection drops channels in the midst of tests that have none.
    asyncio.run(_begin_grpc())
    # Else asking for the current loop makes one in synchronous tests, which nobody closes.
    asyncio.set_event_loop(None)


async def _begin_grpc() -> None:
    grpc.aio.init_grpc_aio()  # asks for a loop


def pytest_collection() -> None:
    gc.disable()  # thousands of tests are collected, none of them rubbish: it takes half the time


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()  # what a test collects is its own rubbish
    gc.enable()
    session.config.add_cleanup(blocking.activated().deactivate)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "may_block: product code may block this test's event loop")


def pytest_xdist_auto_num_workers() -> int:
    """Three for each processor: most of the long tests wait."""
    return 3 * len(os.sched_getaffinity(0))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    config.option.loadscopereorder = False  # `pytest_collection_modifyitems` has put them in order
    return LoadFileScheduling(config, log)


def _seconds(file: list[pytest.Item]) -> float:
    marker = file[0].get_closest_marker("seconds")
    return float(marker.args[0]) if marker else 0.0


def _spread(
    files: list[list[pytest.Item]], weight: Callable[[list[pytest.Item]], float], until: float
) -> Iterator[tuple[float, list[pytest.Item]]]:
    """Files in their order, each with the part of the run after which it begins."""
    whole, before = sum(map(weight, files)), 0.0
    for file in files:
        yield until * before / whole, file
        before += weight(file)


def _mixed(items: list[pytest.Item]) -> list[pytest.Item]:
    """File by file: the long ones, by length, with the others spread evenly among them."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    long = sorted(filter(_seconds, files.values()), key=_seconds, reverse=True)
    short = [file for file in files.values() if not _seconds(file)]
    begins = [*_spread(long, _seconds, _LONG_UNTIL), *_spread(short, len, 1.0)]
    return [item for _, file in sorted(begins, key=lambda one: one[0]) for item in file]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = _mixed(items)
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            # First, so that it is torn down last: after the fixtures that stop what they started.
            item.fixturenames.insert(0, "no_leaked_tasks")
            if not item.get_closest_marker("may_block"):
                item.fixturenames.append("no_blocking")  # last: fixtures may read and write files


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """On the project's own machines (CI) a skipped test is one that was not run: a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and skipped and exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"{len(skipped)} tests were skipped, which CI does not allow", red=True)
        session.exitstatus = _SKIPPED
    grpc.aio.shutdown_grpc_aio()


@pytest_asyncio.fixture
async def no_leaked_tasks() -> AsyncIterator[None]:
    """Fail a test that leaves an asyncio task running."""
    before = asyncio.all_tasks()
    yield
    until_s = time.monotonic() + _LEAVING_S
    while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
        if time.monotonic() > until_s:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            pytest.fail(f"left running: {', '.join(sorted(str(task.get_coro()) for task in left))}")
        time.sleep(0.001)  # real time, whatever the loop's clock says
        await asyncio.sleep(0)


@pytest.fixture
def no_blocking() -> Iterator[None]:
    """Fail product code that reads files, sleeps or waits for a lock inside the event loop."""
    with blocking.detected():
        yield


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A function that names a TCP port nobody listens on."""
    return ports.free_port


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM files: a certificate with its chain, and its key."""

    cert_file: str
    key_file: str


class Pki:
    """One authority and the certificates it signs, as files under a directory of the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self._made = 0
        self.ca_file = str(folder / "ca.pem")
        self._authority.cert_pem.write_to_path(self.ca_file)

    def server(self, *names: str) -> Credentials:
        """For host names and addresses; `localhost` and `127.0.0.1` when none is given."""
        return self._write(self._authority.issue_cert(*(names or ("localhost", "127.0.0.1"))))

    def client(self, common_name: str, organization: str | None = None) -> Credentials:
        """For a user (CN) in a group (O)."""
        return self._write(
            self._authority.issue_cert(common_name=common_name, organization_name=organization)
        )

    def ended_client(self, common_name: str, organization: str | None = None) -> Credentials:
        """The same, but its time is over."""
        now = datetime.now(UTC)
        leaf = self._authority.issue_cert(
            common_name=common_name,
            organization_name=organization,
            not_before=now - timedelta(days=2),
            not_after=now - timedelta(days=1),
        )
        return self._write(leaf)

    def _write(self, leaf: trustme.LeafCert) -> Credentials:
        self._made += 1
        cert, key = self._folder / f"{self._made}.pem", self._folder / f"{self._made}.key"
        leaf.private_key_pem.write_to_path(str(key))
        cert.write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        return Credentials(str(cert), str(key))


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    """A new authority, its `ca_file`, and `server()` and `client()` certificates."""
    folder = tmp_path / "pki"
    folder.mkdir()
    return Pki(folder)
