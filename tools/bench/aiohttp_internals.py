"""The code beyond aiohttp's public interface: the API server with and without each part, in turns.

A server over TLS changes its own code at a signal, so that both variants share the process, its
memory and the machine's state; turns are short and in random order. Figures are CPU of the server;
ratios are of neighbouring turns, median and quartiles. Five minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import signal
import ssl
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from orch.component.http import connection, fair_queue, httpd
from orch.server import main as server_main
from orch.server.handlers import call, watch_stream
from orch.server.objects import renewal
from tests.e2e import apiserver
from tools.bench import http_load, processes, stored_cluster
from tools.bench.apiserver import LEASES_PATH, client_context, one_core, renewals
from tools.bench.apiserver_cluster import NODES_PATH, Client, Watch, stop
from tools.bench.http_load import Figures
from tools.bench.table import Table

TURNS = 60
CLIENTS, REQUESTS = 50, 4  # of a turn
LIST_TURNS, LISTED = 12, (300, 1200, 5000)
WATCH_TURNS, WATCHES, WRITERS, EVENTS_PER_S, EVENTS = 10, 100, 5, 100, 100
IDLE = 300
KEPT, ALONE = "kept", "alone"

Change = tuple[object, str, object]  # an owner, the name of an attribute, and its plain value


async def _hold(self: Any, work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(self.seconds):
        return await work


async def _arrived(request: web.Request, timeout_s: float) -> bytes:
    async with asyncio.timeout(timeout_s):
        return await request.read()


def _peer(request: web.Request) -> Any:
    certificate = request.transport.get_extra_info("peercert") if request.transport else None
    end_s = ssl.cert_time_to_seconds(certificate["notAfter"]) if certificate else math.inf
    return httpd.identity_of(certificate), end_s


def _respond(status: int, body: bytes, headers: Any, **_: object) -> web.Response:
    return web.Response(status=status, body=body, headers=headers)


class _TaskFeed(watch_stream._Feed):
    """Leaves all work to the handler's task."""

    def _arrived(self) -> None:
        self._leave()


class _Beside:
    """The shortcut of the server, which can be closed."""

    beside = staticmethod(httpd.Shortcut.beside)
    is_open = True

    @classmethod
    def switchable(cls, shortcut: Any, app: web.Application, routed: Any) -> Any:
        short = cls.beside(shortcut, app, routed)
        return lambda request: (short if cls.is_open else routed)(request)


REQUEST_PATHS: dict[str, list[Change]] = {
    "requests through the router": [(_Beside, "is_open", False)],
    "a timer for each request": [(fair_queue.Deadlines, "hold", _hold)],
    "bodies waited for": [(httpd, "_arrived", _arrived)],
    "the certificate read each time": [(httpd, "_peer", _peer)],
    "renewals as any replacement": [(renewal, "renewed", lambda _stored, _body: None)],
}
BODIES: dict[str, list[Change]] = {"whole bodies": [(call, "respond", _respond)]}
BUFFERS: dict[str, list[Change]] = {
    "asyncio's TLS buffers": [(asyncio.sslproto.SSLProtocol, "max_size", 256 * 1024)]
}
WATCHING: dict[str, list[Change]] = {
    "each event at once": [(watch_stream, "BUSY_S", 0.0)],
    "a chunk made for each watch": [
        (watch_stream._Writer, "_common_chunk", watch_stream._Writer._chunk)
    ],
    "events written by the handler's task": [(watch_stream, "_Feed", _TaskFeed)],
}
VARIANTS: dict[str, list[Change]] = {
    KEPT: [], ALONE: [], **REQUEST_PATHS, **BODIES, **BUFFERS, **WATCHING,
}  # fmt: skip


def serve(file: Path, arguments: list[str]) -> int:
    """The API server; on SIGUSR2 it switches to the variant that the file names."""
    undo: list[Change] = []

    def switch(*_: object) -> None:
        for changed in undo:
            setattr(*changed)
        undo.clear()
        name = file.read_text()
        for owner, attribute, value in VARIANTS[name]:
            undo.append((owner, attribute, getattr(owner, attribute)))
            setattr(owner, attribute, value)
        file.with_suffix(".done").write_text(name)

    connection.limit_tls_buffers()
    httpd.Shortcut.beside = lambda *given: _Beside.switchable(*given)  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR2, switch)
    sys.argv[1:] = arguments
    return server_main.main()


class Server:
    """The running server; `turn` takes one measurement in one variant."""

    def __init__(self, directory: Path, running: apiserver.ApiServer) -> None:
        self.running = running
        self.pid, self.port = running.process.pid, running.port
        self.context = client_context(running.ca_file, running.admin)
        self._file = directory / "variant"

    async def switch(self, variant: str) -> None:
        done = self._file.with_suffix(".done")
        done.unlink(missing_ok=True)
        self._file.write_text(variant)
        os.kill(self.pid, signal.SIGUSR2)
        await _until(lambda: done.exists() and done.read_text() == variant)

    async def compare(
        self, variants: list[str], turns: int, turn: Callable[[str], Awaitable[float]]
    ) -> dict[str, list[float]]:
        """The results of `turn` by variant, neighbours at equal places, without the first round."""
        seen: dict[str, list[float]] = {variant: [] for variant in variants}
        for _ in range(turns + 1):
            for variant in random.sample(variants, len(variants)):
                await self.switch(variant)
                seen[variant].append(await turn(variant))
        return {variant: values[1:] for variant, values in seen.items()}


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while True:
            if holds():
                return
            await asyncio.sleep(0.005)


@contextlib.contextmanager
def _server(directory: Path) -> Iterator[Server]:
    program = ("-m", __spec__.name, str(directory / "variant")) if __spec__ else ()
    cores, priority = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -15)
        with one_core():
            started = stack.enter_context(apiserver.running(directory, program=program))
        yield Server(directory, started)
    os.sched_setaffinity(0, cores)
    os.setpriority(os.PRIO_PROCESS, 0, priority)


def main() -> None:
    table = Table()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        (Path(name) / "data").mkdir()
        stored_cluster.fill(Path(name) / "data" / "state.db", nodes=LISTED[-1])
        with _server(Path(name)) as server:
            asyncio.run(_measure(server, table))
    print(f"\n{table.markdown()}")


async def _measure(server: Server, table: Table) -> None:
    for variant, kib in (await _memory(server)).items():  # first, while no memory lies free
        table.note(f"idle TLS connection, {variant}: KiB", f"{kib:.0f}")
    variants = [KEPT, *REQUEST_PATHS]
    for method, maker in (("PUT", renewals), ("GET", _getter)):
        seen = await _requests(server, variants, TURNS, maker, (CLIENTS, REQUESTS))
        _add(table, f"{method} of a Lease", seen)
    for count in LISTED:
        seen = await _requests(server, [KEPT, *BODIES], LIST_TURNS, partial(_lister, count), (1, 2))
        _add(table, f"list of {count} nodes", seen)
    seen = await _fan_out(server)
    alone_us = statistics.median(seen.pop(ALONE))
    deliveries = EVENTS * WATCHES
    _add(table, "delivery of an event", {
        variant: [(used_us - alone_us) / deliveries for used_us in values]
        for variant, values in seen.items()
    })  # fmt: skip


def _add(table: Table, what: str, seen: dict[str, list[float]]) -> None:
    table.note(f"{what}: µs", f"{statistics.median(seen[KEPT]):.1f}")
    for variant in seen.keys() - {KEPT}:
        ratios = [plain / kept for plain, kept in zip(seen[variant], seen[KEPT], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        table.note(f"{what}, {variant}", f"{middle:.2f} ({low:.2f} to {high:.2f})")


def _getter(name: str) -> http_load.NextRequest:
    return lambda _answered: http_load.request("GET", f"{LEASES_PATH}/{name}")


def _lister(count: int, _name: str) -> http_load.NextRequest:
    return lambda _answered: http_load.request("GET", f"{NODES_PATH}?limit={count}")


async def _requests(
    server: Server,
    variants: list[str],
    turns: int,
    maker: Callable[[str], http_load.NextRequest],
    load: tuple[int, int],
) -> dict[str, list[float]]:
    """µs of CPU per request; `load` is clients, and requests per client and turn."""
    clients, requests = load
    figures = Figures()
    connections = [
        await http_load.connect(server.port, maker(f"c{number}"), figures, server.context)
        for number in range(clients)
    ]

    async def ask(one: http_load.Connection) -> None:
        for _ in range(requests):
            await one.once()

    async def turn(_variant: str) -> float:
        used_s = processes.cpu_s(server.pid)
        await asyncio.gather(*map(ask, connections))
        return 1e6 * (processes.cpu_s(server.pid) - used_s) / clients / requests

    seen = await server.compare(variants, turns, turn)
    assert not figures.refused
    for one in connections:
        one.close()
    return seen


async def _memory(server: Server) -> dict[str, float]:
    """KiB per connection, of many that sent one request, by variant."""
    ask = http_load.request("GET", "/livez")
    held: list[http_load.Connection] = []
    seen = {}
    for variant in (KEPT, *BUFFERS):
        await server.switch(variant)
        before_kib = processes.status_kib(server.pid, "VmRSS")
        for _ in range(IDLE):
            held.append(
                await http_load.connect(server.port, lambda _: ask, Figures(), server.context)
            )
            await held[-1].once()
        seen[variant] = (processes.status_kib(server.pid, "VmRSS") - before_kib) / IDLE
    for one in held:
        one.close()
    return seen


async def _fan_out(server: Server) -> dict[str, list[float]]:
    """µs of CPU for the events of a turn, each delivered to every watch."""
    writers = [_Writer(server, f"fan-out-{number}") for number in range(WRITERS)]
    for writer in writers:
        await writer.start()

    async def turn(variant: str) -> float:
        listed = await writers[0].client.ask(http_load.request("GET", f"{LEASES_PATH}?limit=1"))
        watches = [Watch(LEASES_PATH) for _ in range(0 if variant == ALONE else WATCHES)]
        for watch in watches:
            await watch.start(server.running, server.context, listed)
        following = [asyncio.create_task(watch.follow()) for watch in watches]
        await asyncio.sleep(0.1)
        used_s = processes.cpu_s(server.pid)
        await asyncio.gather(*(one.send(n) for n, one in enumerate(writers)))
        await _until(lambda: sum(one.events for one in watches) >= EVENTS * len(watches))
        used_us = 1e6 * (processes.cpu_s(server.pid) - used_s)
        for watch in watches:
            watch.close()
        await stop(following)
        return used_us

    seen = await server.compare([KEPT, ALONE, *WATCHING], WATCH_TURNS, turn)
    for writer in writers:
        writer.client.close()
    return seen


class _Writer:
    """A client that causes events by renewing a Lease of its own."""

    def __init__(self, server: Server, name: str) -> None:
        self.client = Client()
        self._server = server
        self._make = renewals(name)
        self._lease = b""

    async def start(self) -> None:
        await self.client.start(self._server.running, self._server.context)
        self._lease = await self.client.ask(self._make(b""))

    async def send(self, number: int) -> None:
        """Send its share of a turn's events, interleaved with the others'."""
        loop = asyncio.get_running_loop()
        planned_s = loop.time() + number / EVENTS_PER_S
        for _ in range(EVENTS // WRITERS):
            await asyncio.sleep(max(0.0, planned_s - loop.time()))
            self._lease = await self.client.ask(self._make(self._lease))
            planned_s += WRITERS / EVENTS_PER_S


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1]), sys.argv[2:]))
