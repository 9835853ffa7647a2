"""5,000 Nodes and Leases under renewals, with watches and lists, and a check for lost writes.

The load: 500 renewals a second over 100 connections, 17 status reports a second, 5 watches of all
Leases, 50 of all Nodes, a list of all Nodes every 10 s. In the end every watch must have reached
the state of a list, and every acknowledged write must be in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.apiserver import ApiServer
from tools.bench import http_load, processes, stored_cluster
from tools.bench.apiserver import LEASES_PATH, client_context, pinned_server, renewed
from tools.bench.http_load import Connection, Figures
from tools.bench.table import Table

NODES = 5000
RENEWALS_PER_S = 500
STATUSES_PER_S = 17
CONNECTIONS = 100
LEASE_WATCHES, NODE_WATCHES = 5, 50
LIST_EVERY_S = 10.0
FANOUT_WATCHES, FANOUT_WRITES_PER_S, FANOUT_S = 100, 100, 10.0
NODES_PATH = "/api/v1/nodes"
_NAME = re.compile(rb'"metadata":\{"resourceVersion":"(\d+)","name":"([^"]+)"')


def run(directory: Path, table: Table) -> None:
    seconds = float(os.environ.get("BENCH_APISERVER_SECONDS") or 60)
    (directory / "data").mkdir(parents=True)
    stored_cluster.fill(directory / "data" / "state.db", nodes=NODES)
    with pinned_server(directory) as server:
        asyncio.run(_large(server, client_context(server.ca_file, server.admin), seconds, table))
    with pinned_server(directory) as server:
        asyncio.run(_fan_out(server, client_context(server.ca_file, server.admin), table))


@dataclass
class Watch:
    """The newest revision of each object, as one watch shows it."""

    path: str
    known: dict[bytes, int] = field(default_factory=dict)
    events: int = 0
    backwards: int = 0
    _reader: asyncio.StreamReader | None = None
    _writer: asyncio.StreamWriter | None = None

    async def start(self, server: ApiServer, context: ssl.SSLContext, listed: bytes) -> None:
        """Begin after a list."""
        self.known = revisions(listed)
        path = f"{self.path}?watch=1&resourceVersion={list_revision(listed)}"
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=context, limit=1 << 20
        )
        self._writer.write(http_load.request("GET", path))
        await self._reader.readuntil(b"\r\n\r\n")

    async def follow(self) -> None:
        assert self._reader is not None
        newest, rest = 0, b""
        while data := await self._reader.read(1 << 18):
            rest += data
            last = 0
            for match in _NAME.finditer(rest):
                revision = int(match[1])
                self.backwards += revision <= newest
                newest = revision
                self.known[match[2]] = revision
                self.events += 1
                last = match.end()
            rest = rest[max(last, len(rest) - 200) :] if last else rest[-200:]

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()


def revisions(listed: bytes) -> dict[bytes, int]:
    return {match[2]: int(match[1]) for match in _NAME.finditer(listed)}


def list_revision(listed: bytes) -> int:
    return int(
        json.loads(listed[: listed.index(b',"items":')] + b"}")["metadata"]["resourceVersion"]
    )


class Client:
    """A connection for one request at a time."""

    def __init__(self) -> None:
        self.figures = Figures()
        self.answered = b""
        self._next = b""
        self._connection: Connection | None = None

    async def start(self, server: ApiServer, context: ssl.SSLContext) -> None:
        def make(answered: bytes) -> bytes:
            return self._next

        self._connection = await http_load.connect(server.port, make, self.figures, context)

    async def ask(self, request: bytes) -> bytes:
        assert self._connection is not None
        self._next = request
        await self._connection.once()
        return self._connection.body

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Load:
    """The writers and the answers they got."""

    def __init__(self, clients: list[Client], leases: dict[bytes, bytes]) -> None:
        self.clients = clients
        self.leases = leases  # name → the object as last answered
        self.sent = 0

    async def renew(
        self, client: Client, names: list[bytes], per_second: float, after_s: float = 0.0
    ) -> None:
        """Send for each name in turn at that rate; late requests are sent at once."""
        await asyncio.sleep(after_s)
        loop = asyncio.get_running_loop()
        planned_s, turn = loop.time(), 0
        while True:
            name = names[turn % len(names)]
            turn += 1
            body = renewed(self.leases[name], turn)
            path = f"{LEASES_PATH}/{name.decode()}"
            self.leases[name] = await client.ask(
                http_load.request("PUT", path, body, "application/json")
            )
            planned_s += 1 / per_second
            await asyncio.sleep(max(0.0, planned_s - loop.time()))


async def report(client: Client) -> None:
    """Node status as agents send it every five minutes, and when something changed."""
    loop = asyncio.get_running_loop()
    planned_s, turn = loop.time(), 0
    while True:
        turn += 1
        status = {"status": {"conditions": [{"type": "Ready", "reason": f"Turn{turn}"}]}}
        path = f"{NODES_PATH}/n{turn * 7 % NODES}/status"
        kind = "application/strategic-merge-patch+json"
        await client.ask(http_load.request("PATCH", path, json.dumps(status).encode(), kind))
        planned_s += 1 / STATUSES_PER_S
        await asyncio.sleep(max(0.0, planned_s - loop.time()))


async def list_nodes(client: Client, taken: list[float]) -> None:
    while True:
        began_s = time.perf_counter()
        await client.ask(http_load.request("GET", NODES_PATH))
        taken.append(time.perf_counter() - began_s)
        await asyncio.sleep(LIST_EVERY_S)


async def _large(server: ApiServer, context: ssl.SSLContext, seconds: float, table: Table) -> None:
    clients = [Client() for _ in range(CONNECTIONS + 2)]
    for client in clients:
        await client.start(server, context)
    reporter, lister, *writers = clients
    listed = {path: await lister.ask(http_load.request("GET", path)) for path in _paths()}
    watches = [Watch(path) for path in _paths() for _ in range(_paths()[path])]
    for watch in watches:
        await watch.start(server, context, listed[watch.path])
    leases = {
        item["metadata"]["name"].encode(): json.dumps(
            {**item, "kind": "Lease"}, separators=(",", ":")
        ).encode()
        for item in json.loads(listed[LEASES_PATH])["items"]
    }
    load = Load(writers, leases)
    names = sorted(leases)
    lists: list[float] = []
    each_per_s = RENEWALS_PER_S / CONNECTIONS
    tasks = [  # one after the other, as nodes that know nothing of each other
        asyncio.create_task(
            load.renew(client, names[n::CONNECTIONS], each_per_s, n / RENEWALS_PER_S)
        )
        for n, client in enumerate(writers)
    ]
    tasks += [asyncio.create_task(report(reporter)), asyncio.create_task(list_nodes(lister, lists))]
    following = [asyncio.create_task(watch.follow()) for watch in watches]
    await asyncio.sleep(5)
    for client in writers:
        client.figures.seconds.clear()
    used_s, began_s = processes.cpu_s(server.process.pid), time.perf_counter()
    await asyncio.sleep(seconds)
    elapsed_s = time.perf_counter() - began_s
    cpu = (processes.cpu_s(server.process.pid) - used_s) / elapsed_s
    together = Figures(
        [one for client in writers for one in client.figures.seconds], elapsed_s=elapsed_s
    )
    refused = sum(client.figures.refused for client in clients)
    await stop(tasks)
    await asyncio.sleep(3)  # for what is still on its way to the readers
    await _compare(server, context, load, watches, table)
    await stop(following)
    table.row("refused requests", refused, at_most=0)
    table.row(f"{NODES} nodes: renewals a second", together.per_second,
              at_least=0.98 * RENEWALS_PER_S)  # fmt: skip
    table.row("p99 of a renewal, ms", together.ms(0.99), at_most=50)
    table.note("p50 of a renewal, ms", f"{together.ms(0.5):.1f}")
    table.row("a list of all nodes, s (median)", sorted(lists)[len(lists) // 2], at_most=0.3)
    table.note("the slowest of them, s", f"{max(lists):.2f}")
    peak_mib = processes.peak_mib(server.process.pid)
    table.row("resident memory (peak), MiB", peak_mib, at_most=300)
    table.note("cores the server used", f"{cpu:.2f}")
    for one in (*watches, *clients):
        one.close()


def _paths() -> dict[str, int]:
    return {LEASES_PATH: LEASE_WATCHES, NODES_PATH: NODE_WATCHES}


async def stop(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _compare(
    server: ApiServer, context: ssl.SSLContext, load: Load, watches: list[Watch], table: Table
) -> None:
    """Compare the writers' answers and the watches with a final list."""
    last = Client()
    await last.start(server, context)
    final = {path: revisions(await last.ask(http_load.request("GET", path))) for path in _paths()}
    last.close()
    answered = {name: _NAME.search(lease) for name, lease in load.leases.items()}
    lost = sum(
        1 for name, match in answered.items() if match and final[LEASES_PATH][name] < int(match[1])
    )
    missed = sum(watch.known != final[watch.path] or watch.backwards > 0 for watch in watches)
    table.row("acknowledged renewals that are lost", lost, at_most=0)
    table.row(f"of {len(watches)} watches, those that missed an event", missed, at_most=0)
    table.note("events delivered", str(sum(watch.events for watch in watches)))


async def _fan_out(server: ApiServer, context: ssl.SSLContext, table: Table) -> None:
    """The server's CPU per delivery: the same writes with watches, less those without."""
    client = Client()
    await client.start(server, context)
    lease = json.dumps(stored_cluster.lease("fan-out")).encode()
    created = await client.ask(http_load.request("POST", LEASES_PATH, lease, "application/json"))
    load = Load([client], {b"fan-out": created})
    alone_s = await _paced(server, load, client)
    listed = await client.ask(http_load.request("GET", LEASES_PATH))
    load.leases[b"fan-out"] = await client.ask(http_load.request("GET", f"{LEASES_PATH}/fan-out"))
    watches = [Watch(LEASES_PATH) for _ in range(FANOUT_WATCHES)]
    for watch in watches:
        await watch.start(server, context, listed)
    following = [asyncio.create_task(watch.follow()) for watch in watches]
    watched_s = await _paced(server, load, client)
    await asyncio.sleep(1)
    deliveries = sum(watch.events for watch in watches)
    await stop(following)
    table.row(f"fan-out to {FANOUT_WATCHES} watches over TLS, µs of CPU a delivery",
              1e6 * (watched_s - alone_s) / deliveries, at_most=10)  # fmt: skip
    for one in (*watches, client):
        one.close()


async def _paced(server: ApiServer, load: Load, client: Client) -> float:
    """CPU seconds of the server for that many seconds of writes."""
    used_s = processes.cpu_s(server.process.pid)
    task = asyncio.create_task(load.renew(client, [b"fan-out"], FANOUT_WRITES_PER_S))
    await asyncio.sleep(FANOUT_S)
    await stop([task])
    await asyncio.sleep(0.5)
    return processes.cpu_s(server.process.pid) - used_s
