"""Memory: answers, watches and logs that nobody reads, bodies and heads on idle connections.

Each client announces a small window, so that what it does not read stays with the server. Growth is
that of the server's own pages. Before these bounds, 40 unread lists of 30 MB took 1.2 GB.
"""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest

from orch.component.pki import Authority, KeyPair, Subject
from tests.attacks import harness
from tests.attacks.harness import NEIGHBOUR, NODE, OPERATOR, TENANT, Attacked
from tests.e2e.harness import eventually

pytestmark = pytest.mark.alone  # what is cut late takes memory, and a busy machine is late

USERS = tuple(f"user{number}" for number in range(20))
OBJECTS = f"/api/v1/namespaces/{TENANT}/configmaps"
LEASES = f"/apis/coordination.orch.io/v1/namespaces/{TENANT}/leases"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
BIG = "x" * 1_000_000
LISTED = 30  # objects of 1 MB: a list has 30 MB
MB = 1_000_000
OF_ONE_MB = 150  # 64 MiB that wait, and what 400 connections cost without any answer
OF_ALL_MB = 350  # 256 MiB that wait, likewise
HISTORY_MB = 75  # 64 MiB of replaced states
HELD_MB = 140  # 128 MiB of replaced states that are being sent
LEFT_MB = 40


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The directory of the server's authority, and the port of an agent that logs without end."""
    directory = tmp_path_factory.mktemp("memory")
    authority = Authority(directory / "pki", now=datetime.now(UTC))
    with logging_agent(authority.issue(Subject("agent", "agent", (), (NODE,)))) as port:
        yield directory, port


@pytest.fixture(scope="module")
def target(agent: tuple[Path, int]) -> Iterator[Attacked]:
    directory, port = agent
    ca_file = Authority(directory / "pki", now=datetime.now(UTC)).ca_file
    flags = (f"--nodeagent-certificate-authority={ca_file}", "--node-proxy-allow-loopback")
    with harness.attacked(directory, harness.AT_ANY_RATE, *flags, users=USERS) as running:
        for user in USERS:
            harness.grant(running, user, namespace=TENANT, role="view")
        for number in range(LISTED):
            big(running, "POST", f"big{number}")
        report_agent(running, port)
        yield running


def big(target: Attacked, method: str, name: str, content: str = BIG) -> int:
    body = {"metadata": {"name": name, "labels": {"n": name}}, "data": {"x": content}}
    path = OBJECTS if method == "POST" else f"{OBJECTS}/{name}"
    return target.ask(TENANT, method, path, body).status


@dataclass
class Growth:
    """Of the server's memory in MB."""

    at_most: float = 0.0


@contextmanager
def attacking(
    target: Attacked, limit_mb: float, history_mb: float = 0
) -> Iterator[contextlib.ExitStack]:
    """Within it, open connections on the stack; what grew is judged, and what others felt."""
    before, growth, done = target.resident_bytes(), Growth(), threading.Event()

    def grown() -> float:
        return (target.resident_bytes() - before) / MB

    def sample() -> None:
        while not done.wait(0.1):
            growth.at_most = max(growth.at_most, grown())

    sampler = threading.Thread(target=sample)
    with target.witnessed() as seen:
        sampler.start()
        with contextlib.ExitStack() as stack:
            yield stack
            time.sleep(2.5)  # the slowest are cut within two seconds
            done.set()
            sampler.join()
    limit_mb += history_mb
    assert growth.at_most < limit_mb, f"memory grew by {growth}, of {limit_mb} MB; {seen}"
    left_mb = LEFT_MB + history_mb
    eventually(lambda: grown() < left_mb, within_s=20, what=f"memory returns after {growth}")
    print(f"grew by {growth.at_most:.0f} MB, kept {grown():.0f}; {seen}")
    harness.others_served(seen)


@cache
def context(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file)


def unread(
    target: Attacked, user: str, path: str, *, accept: str = "*/*", times: int = 1
) -> ssl.SSLSocket:
    """A connection whose client asks and does not read."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.settimeout(30)
    raw.connect(("127.0.0.1", target.port))
    connection = context(target.server.ca_file).wrap_socket(raw, server_hostname="127.0.0.1")
    asked = harness.head(user, "GET", path, 0, f"Accept: {accept}")
    with contextlib.suppress(OSError):  # it may have been cut while it asks again
        connection.sendall(asked * times)
    return connection


FORMS: dict[str, Callable[[int], tuple[str, str]]] = {
    "the same": lambda _: (OBJECTS, "*/*"),
    "each of a selection of its own": lambda n: (f"{OBJECTS}?labelSelector=n!%3Dx{n}", "*/*"),
    "tables with all objects": lambda _: (f"{OBJECTS}?includeObject=Object", TABLE),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_lists_that_one_user_does_not_read_cost_little(target: Attacked, form) -> None:
    with attacking(target, OF_ONE_MB) as stack:
        for number in range(400 if form is FORMS["the same"] else 60):
            path, accept = form(number)
            stack.enter_context(unread(target, TENANT, path, accept=accept))


def test_lists_that_many_users_do_not_read_are_bounded_in_all(target: Attacked) -> None:
    with attacking(target, OF_ALL_MB) as stack:
        for user in USERS * 15:
            stack.enter_context(unread(target, user, OBJECTS))


def test_an_object_asked_for_10_000_times_is_not_copied_each_time(target: Attacked) -> None:
    with attacking(target, OF_ONE_MB) as stack:
        for _ in range(100):
            stack.enter_context(unread(target, TENANT, f"{OBJECTS}/big1", times=100))


def test_watches_that_nobody_reads_and_large_updates_are_bounded(target: Attacked) -> None:
    with attacking(target, OF_ONE_MB, HISTORY_MB) as stack:
        for number in range(200):
            selector = f"&labelSelector=n!%3Dx{number}" if number % 2 else ""
            path = f"{OBJECTS}?watch=1&resourceVersion=0{selector}"
            stack.enter_context(unread(target, TENANT, path))
        for number in range(100):
            assert big(target, "PUT", "big2", BIG + str(number)) == 200


def test_watches_of_many_small_objects_that_nobody_reads_are_bounded(target: Attacked) -> None:
    """An event for each object was made first: of 20,000, 300 watches took 535 MB."""
    target.make_small(LEASES, 6_000)
    with attacking(target, OF_ONE_MB) as stack:
        for _ in range(400):
            stack.enter_context(unread(target, TENANT, f"{LEASES}?watch=1"))


def test_lists_of_states_that_were_replaced_are_let_go(target: Attacked) -> None:
    """Each unread list holds the states of its moment, until too much was replaced since."""
    with attacking(target, OF_ONE_MB + HELD_MB, HISTORY_MB) as stack:
        for number in range(210):
            stack.enter_context(unread(target, TENANT, OBJECTS))
            assert big(target, "PUT", f"big{number % LISTED}", BIG + str(number)) == 200


def test_a_slow_reader_is_not_cut_for_what_another_tenant_replaces(target: Attacked) -> None:
    path = f"/api/v1/namespaces/{NEIGHBOUR}/configmaps"
    for number in range(3):
        made = {"metadata": {"name": f"slow{number}"}, "data": {"x": BIG}}
        assert target.ask(NEIGHBOUR, "POST", path, made).status == 201
    with unread(target, NEIGHBOUR, path) as connection:
        taken = 0
        for number in range(HELD_MB + 5):
            assert big(target, "PUT", f"big{number % LISTED}", BIG + str(number)) == 200
            taken += len(connection.recv(8192))  # who takes nothing at all for long is cut
        while taken < 3 * len(BIG):
            more = len(connection.recv(65_536))
            assert more, f"the list broke off after {taken} bytes"
            taken += more


def test_logs_that_nobody_reads_hold_up_their_agent(target: Attacked) -> None:
    path = f"/api/v1/namespaces/{TENANT}/pods/logging/log?follow=true"
    with attacking(target, OF_ONE_MB) as stack:
        for _ in range(60):
            stack.enter_context(unread(target, TENANT, path))


def test_idle_connections_keep_neither_bodies_nor_answers(target: Attacked) -> None:
    body = b" " * 2_900_000
    with attacking(target, 50) as stack:
        for _ in range(40):
            connection = stack.enter_context(target.open())
            connection.sendall(harness.head(TENANT, "POST", OBJECTS, len(body)) + body)
            assert connection.recv(12) == b"HTTP/1.1 400"


def test_heads_that_do_not_end_are_cut(target: Attacked) -> None:
    line = b"A: " + b"b" * 8000 + b"\r\n"
    with attacking(target, 50) as stack:
        for _ in range(80):
            connection = stack.enter_context(target.open())
            with contextlib.suppress(OSError):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + line * 100)


def test_short_memory_stops_tenants_and_lets_them_delete(tmp_path: Path) -> None:
    with harness.attacked(tmp_path, harness.AT_ANY_RATE, "--memory-limit=150") as small:
        with small.witnessed() as seen:
            codes = [big(small, "POST", "first")]
            while codes[-1] == 201:
                codes.append(big(small, "POST", f"big{len(codes)}"))
                assert len(codes) < 250
            held_mb = small.resident_bytes() / MB
            assert codes[-1] == 429, codes[-1]
            assert held_mb < 150 * 1.048, f"{held_mb:.0f} MB after {len(codes)} objects"
            assert small.ask(TENANT, "GET", f"{OBJECTS}?watch=1").status == 429
            assert small.ask(TENANT, "GET", f"{OBJECTS}?limit=1").status == 200
            small.make("/api/v1/namespaces", {"metadata": {"name": "made-meanwhile"}})
            for number in range(1, len(codes) - 1):
                assert small.ask(TENANT, "DELETE", f"{OBJECTS}/big{number}").status == 200
            eventually(lambda: big(small, "POST", "again") == 201, within_s=20, what="it recovers")
        assert seen.requests > 0 and seen.errors == 0, seen
        assert seen.renewals_refused == 0 and seen.lease_late_s <= 5.0, seen
        assert "memory is short" in small.server.log()


class _Endless(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(bytes(65_536))

    def log_message(self, *_args: object) -> None:
        """Not on the test's output."""


@contextmanager
def logging_agent(pair: KeyPair) -> Iterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Endless)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def report_agent(target: Attacked, port: int) -> None:
    """The witness' node has an agent, and the tenant a pod there."""
    addresses = [{"type": "InternalIP", "address": "127.0.0.1"}]
    status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
    merge = "application/merge-patch+json"
    path = f"/api/v1/nodes/{NODE}/status"
    answer = target.ask(OPERATOR, "PATCH", path, {"status": status}, Content_Type=merge)
    assert answer.status == 200, answer.body
    spec = {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}
    pods = f"/api/v1/namespaces/{TENANT}/pods"
    target.make(pods, {"metadata": {"name": "logging"}, "spec": spec})
