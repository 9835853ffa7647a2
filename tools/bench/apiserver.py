"""The API server: durable writes against etcd, starts, a cluster of 5,000 nodes, watch fan-out.

Real parts: the program over TLS with client certificates on one core, its load on another. Ratios
beside a limit are of the same run. `BENCH_APISERVER_SECONDS` (60) is the duration of the large
cluster's load.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import ssl
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from orch.component.pki import Authority, KeyPair, Subject
from tests.e2e import apiserver
from tests.e2e.apiserver import ApiServer
from tests.orch.server.storage import etcdserver
from tools.bench import http_load, processes, stored_cluster
from tools.bench.http_load import Figures, NextRequest
from tools.bench.table import Table

CLIENTS = (1, 10, 100)
SECONDS = 5.0
STARTS = 5
LEASES_PATH = f"/apis/coordination.orch.io/v1/namespaces/{stored_cluster.LEASE_NAMESPACE}/leases"


def main() -> int:
    """Run the benchmark; the number of missed limits."""
    from tools.bench import apiserver_cluster  # which uses this module

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed server has its code compiled
    table = Table()
    table.note("load average at the start", f"{os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        _writes(Path(name) / "writes", table)
        _starts(Path(name), table)
        apiserver_cluster.run(Path(name) / "cluster", table)
    print(f"\n{table.markdown()}")
    return table.missed


@contextmanager
def pinned_server(directory: Path) -> Iterator[ApiServer]:
    """Run the server on the first core and this process on the others."""
    with contextlib.ExitStack() as stack:
        with one_core():
            server = stack.enter_context(apiserver.running(directory))
        yield server


@contextmanager
def one_core() -> Iterator[None]:
    """Children started inside run on the first core; this process runs on the others."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores[1:] or cores)


def client_context(ca_file: str, client: KeyPair) -> ssl.SSLContext:
    """TLS with a client certificate."""
    context = ssl.create_default_context(cafile=ca_file)
    context.load_cert_chain(client.cert_file, client.key_file)
    return context


def _writes(directory: Path, table: Table) -> None:
    directory.mkdir()
    ours: dict[int, Measured] = {}
    with pinned_server(directory) as server:
        context = client_context(server.ca_file, server.admin)
        for clients in CLIENTS:
            makers = [renewals(f"c{clients}-{number}") for number in range(clients)]
            ours[clients] = _measured(server.process.pid, server.port, makers, context)
    etcd, plain = _etcd_writes(directory), _etcd_writes()
    for clients in CLIENTS:
        each = ours[clients], etcd[clients], plain[clients]
        of = f"at {clients} clients; etcd's gateway over TLS, plain"
        table.note(f"durable Lease PUTs a second over TLS {of}",
                   "; ".join(f"{one.per_second:.0f}" for one in each))  # fmt: skip
        table.note(f"p99 {of}, ms", "; ".join(f"{one.ms(0.99):.1f}" for one in each))
        table.note(f"CPU a PUT {of}, µs", "; ".join(f"{one.cpu_us:.0f}" for one in each))
    most = CLIENTS[-1]
    mine = ours[most].per_second
    table.row(f"durable Lease PUTs against etcd's gateway at {most} clients",
              mine / plain[most].per_second, at_least=3)  # fmt: skip
    table.note("the same, the gateway over TLS, too", f"{mine / etcd[most].per_second:.2f}")
    table.row(f"p99 of a Lease PUT at {most} clients, ms", ours[most].ms(0.99), at_most=25)


def renewals(name: str) -> NextRequest:
    """Create a Lease, then PUT the stored object with a new time in each turn."""
    lease = stored_cluster.lease(name)
    turn = 0

    def make(answered: bytes) -> bytes:
        nonlocal turn
        if not answered:
            body = json.dumps(lease).encode()
            return http_load.request("POST", LEASES_PATH, body, "application/json")
        turn += 1
        body = renewed(answered, turn)
        return http_load.request("PUT", f"{LEASES_PATH}/{name}", body, "application/json")

    return make


def renewed(lease: bytes, turn: int) -> bytes:
    """The Lease with the time of that turn, one microsecond per turn."""
    place = lease.index(b'"renewTime":"') + len(b'"renewTime":"')
    time_of_turn = b"2026-01-01T%02d:%02d:%02d.%06dZ" % (
        turn // 3_600_000_000 % 24, turn // 60_000_000 % 60, turn // 1_000_000 % 60,
        turn % 1_000_000,
    )  # fmt: skip
    return lease[:place] + time_of_turn + lease[place + len(time_of_turn) :]


@dataclass
class Measured(Figures):
    """Add the server's CPU per request, in µs."""

    cpu_us: float = 0.0


def _measured(
    pid: int, port: int, makers: list[NextRequest], context: ssl.SSLContext | None = None
) -> Measured:
    used_s = processes.cpu_s(pid)
    figures, requests = asyncio.run(http_load.closed_loop(port, makers, SECONDS, context))
    assert not figures.refused
    cpu_us = 1e6 * (processes.cpu_s(pid) - used_s) / requests
    return Measured(figures.seconds, 0, figures.elapsed_s, cpu_us)


def _etcd_writes(directory: Path | None = None) -> dict[int, Measured]:
    """Plain, or with certificates on both sides, which are created in the directory."""
    context, arguments = None, ()
    if directory is not None:
        authority = Authority(directory / "etcd-pki", now=datetime.now(UTC))
        pair = authority.issue(Subject("etcd", "etcd", (), ("127.0.0.1",)))
        context = client_context(authority.ca_file, pair)
        arguments = (
            "--client-cert-auth", f"--trusted-ca-file={authority.ca_file}",
            f"--cert-file={pair.cert_file}", f"--key-file={pair.key_file}",
        )  # fmt: skip
    scheme = "http" if directory is None else "https"
    with contextlib.ExitStack() as stack:
        with one_core():
            server = stack.enter_context(
                etcdserver.running_etcd(*arguments, scheme=scheme, on_disk=True)
            )
        process = server.process
        assert process is not None
        return {
            clients: _measured(process.pid, server.port, [_put(n) for n in range(clients)], context)
            for clients in CLIENTS
        }


def _put(number: int) -> NextRequest:
    key, value = (
        base64.b64encode(part).decode() for part in (b"/registry/leases/n%d" % number, b"x" * 443)
    )
    body = json.dumps({"key": key, "value": value}).encode()
    whole = http_load.request("POST", "/v3/kv/put", body, "application/json")
    return lambda _answered: whole


def _starts(directory: Path, table: Table) -> None:
    for what, nodes, pods, limit_s in (
        ("of an empty server", 0, 0, 0.7), ("with 50,000 objects", 5000, 40_000, 3.0),
    ):  # fmt: skip
        taken, resident_mib = _start(directory / f"start-{nodes}", nodes, pods)
        table.row(f"start {what} until it listens, s (median)", statistics.median(taken),
                  at_most=limit_s)  # fmt: skip
        table.note("the slowest of them, s; resident, MiB", f"{max(taken):.2f}; {resident_mib:.0f}")


def _start(place: Path, nodes: int, pods: int) -> tuple[list[float], float]:
    (place / "data").mkdir(parents=True)
    stored_cluster.fill(place / "data" / "state.db", nodes=nodes, pods=pods)
    taken, resident_mib = [], 0.0
    for _ in range(STARTS + 1):
        with pinned_server(place) as server:
            taken.append(server.start_s)
            resident_mib = processes.resident_mib(server.process.pid)
    return taken[1:], resident_mib  # the first one compiles, and fills the disk's cache
