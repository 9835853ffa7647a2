"""Nodes that answer the API server with whatever hurts, and what the others notice of it.

Each is registered, has a certificate that the server trusts, and answers like an honest agent until
it is told to attack: with pages of usage, with answers through the node proxy, and with its status.
"""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from orch.component.pki import Authority, Subject
from orch.component.process import clock
from tests.attacks import harness
from tests.attacks.harness import NEIGHBOUR, OPERATOR, Attacked
from tests.e2e.harness import eventually

pytestmark = pytest.mark.slow

MEMORY_BYTES = 48 * 2**20  # that all hostile answers together may take
ATTACK_S = 10.0  # no answer goes on for longer than this
ATTACK_BYTES = 64 * 2**20  # or is longer
HELD_S = 3.0  # until somebody looks on: the server waits for an answer for 5 s
GOOD = ("good-1", "good-2")
NODES, METRICS = "/api/v1/nodes", "/apis/metrics.k8s.io/v1beta1/nodes"
MERGE = "application/merge-patch+json"

Send = Callable[[bytes], None]
OK = b"HTTP/1.1 200 OK\r\n"
SAMPLE = b"node_cpu_usage_seconds_total"


def honest(send: Send) -> None:
    stamp_ms = time.time_ns() // 1_000_000
    page = f"node_cpu_usage_seconds_total {stamp_ms / 2000:.4f} {stamp_ms}\n"
    page += f"node_memory_working_set_bytes 1048576 {stamp_ms}\n"
    send(OK + b"Content-Length: %d\r\n\r\n" % len(page) + page.encode())


def page(body: bytes, *headers: bytes) -> Callable[[Send], None]:
    def answer(send: Send) -> None:
        head = b"".join(header + b"\r\n" for header in headers)
        send(OK + head + b"Content-Length: %d\r\n\r\n" % len(body))
        send(body)

    return answer


def endless(head: bytes, piece: bytes) -> Callable[[Send], None]:
    def answer(send: Send) -> None:
        send(head)
        while True:
            send(piece)

    return answer


def drip(send: Send) -> None:
    send(OK + b"Content-Length: 100000\r\n\r\n")
    while True:
        send(b"\n")
        time.sleep(0.2)


CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
ATTACKS: dict[str, Callable[[Send], None]] = {
    "long-label": page(SAMPLE + b'{a="' + b"a" * 30_000 + b"\n"),
    "long-word": page((SAMPLE + b"{" + b"a" * 20_000 + b"} 1 1\n") * 20),
    "braces": page((SAMPLE + b"{" + b"}" * 1900 + b"\n") * 2000),
    "endless": endless(CHUNKED, b"4000\r\n" + (SAMPLE + b" 1 1\n") * 481 + b"a" * 30 + b"\r\n"),
    "no-newline": endless(CHUNKED, b"4000\r\n" + b"a" * 0x4000 + b"\r\n"),
    "drip": drip,
    "silent": lambda send: time.sleep(ATTACK_S),
    "million-lines": page(b"a\n" * 1_000_000),
    "gzip-bomb": page(gzip.compress(bytes(100 * 2**20)), b"Content-Encoding: gzip"),
    "tiny-chunks": endless(CHUNKED, b"1\r\na\r\n" * 3000),
    "interim": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 600),
    "headers": endless(OK, b"X-A: " + b"a" * 8000 + b"\r\n"),
    "infinite": page(SAMPLE + b" 1e999 1\nnode_memory_working_set_bytes 1e999 1\n"),
    "end-of-time": page(SAMPLE + b" 1 999999999999999\nnode_memory_working_set_bytes 1 1\n"),
}


class Node:
    """A listener that speaks for one node; `attack` replaces its honest page of usage."""

    def __init__(self, name: str, context: ssl.SSLContext) -> None:
        self.name = name
        self.attack: Callable[[Send], None] | None = None
        self.begin = threading.Event()  # until it is set no attack begins
        self.attacked = 0  # how often it began to
        self.active = 0
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.attack = None
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        raw.settimeout(ATTACK_S)
        with suppress(OSError), self._context.wrap_socket(raw, server_side=True) as connection:
            while head := self._head(connection):
                self._answer(connection, head)

    def _head(self, connection: ssl.SSLSocket) -> bytes:
        head = b""
        while b"\r\n\r\n" not in head:
            if not (data := connection.recv(65536)):
                return b""
            head += data
        return head

    def _answer(self, connection: ssl.SSLSocket, head: bytes) -> None:
        path = head.split(b" ", 2)[1]
        if path == b"/unasked":
            connection.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\n"
                b"Upgrade: x\r\nConnection: Upgrade\r\n\r\nhello"
            )
        elif path == b"/connections":
            named = b"Connection: X-One\r\nX-One: 1\r\nConnection: X-Two, X-Three\r\nX-Two: 2\r\n"
            page(head, named + b"X-Three: 3\r\nX-Four: 4")(connection.sendall)
        elif path.startswith(b"/containerLogs/"):
            page(b"<script>", b"Content-Type: text/html\r\nSet-Cookie: a=b")(connection.sendall)
        elif self.attack is None:
            honest(connection.sendall)
        elif self.begin.wait(HELD_S):
            self.attacked += 1
            self.active += 1
            try:
                self.attack(_limited(connection))
            finally:
                self.active -= 1


def _limited(connection: ssl.SSLSocket) -> Send:
    end_s, left = time.monotonic() + ATTACK_S, ATTACK_BYTES

    def send(data: bytes) -> None:
        nonlocal left
        left -= len(data)
        if left < 0 or time.monotonic() > end_s:
            raise ConnectionError("enough")
        connection.sendall(data)

    return send


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Of the agents."""
    return Authority(tmp_path_factory.mktemp("nodes"), now=clock.utc_now())


@pytest.fixture(scope="module")
def nodes(authority: Authority) -> Iterator[dict[str, Node]]:
    names = (*GOOD, *ATTACKS)
    pair = authority.issue(Subject("n", "n", (), names))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    made = {name: Node(name, context) for name in names}
    yield made
    for node in made.values():
        node.close()


def serving(folder: Path, authority: Authority) -> AbstractContextManager[Attacked]:
    return harness.attacked(
        folder,
        f"--nodeagent-certificate-authority={authority.ca_file}", "--node-proxy-allow-loopback",
        "--serve-upstream-aliases",
    )  # fmt: skip


def register(target: Attacked, nodes: dict[str, Node]) -> None:
    for name, node in nodes.items():
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"nodeagentEndpoint": {"Port": node.port}},
        }
        target.make(NODES, {"metadata": {"name": name}})
        patched = target.ask(
            OPERATOR, "PATCH", f"{NODES}/{name}/status", {"status": status}, Content_Type=MERGE
        )
        assert patched.status == 200, patched.body


@pytest.fixture(scope="module")
def target(
    nodes: dict[str, Node], authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Attacked]:
    with serving(tmp_path_factory.mktemp("server"), authority) as running:
        register(running, nodes)
        made = {"metadata": {"name": "p"}, "spec": {"nodeName": "drip", "containers": [
            {"name": "c", "image": "i"}]}}  # fmt: skip
        running.make(f"/api/v1/namespaces/{NEIGHBOUR}/pods", made)
        yield running


@pytest.fixture
def asked_at_once(
    nodes: dict[str, Node], authority: Authority, tmp_path: Path
) -> Iterator[Attacked]:
    """A server that starts with the nodes in its store: its first questions for usage are of all
    of them, and those that attack wait for `begin`.
    """
    with serving(tmp_path, authority) as first:
        register(first, nodes)
    for name, attack in ATTACKS.items():
        nodes[name].attack = attack
    with serving(tmp_path, authority) as running:
        yield running


@contextmanager
def watched_memory(target: Attacked, every_s: float = 0.1) -> Iterator[list[int]]:
    """How many bytes more than before, again and again."""
    before, grown, stop = target.resident_bytes(), [0], threading.Event()

    def look() -> None:
        while not stop.wait(every_s):
            grown.append(target.resident_bytes() - before)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield grown
    finally:
        stop.set()
        looking.join()


def shown(target: Attacked) -> dict[str, Any]:
    """Who has numbers, by name."""
    answer = target.ask(OPERATOR, "GET", METRICS)
    assert answer.status == 200, answer.body
    return {one["metadata"]["name"]: one for one in answer.json()["items"]}


def shown_good(target: Attacked) -> dict[str, Any]:
    """The numbers of the honest nodes; nobody else has any."""
    usage = shown(target)
    assert set(usage) == set(GOOD), f"{set(usage)} have numbers"
    return usage


@pytest.mark.alone
def test_a_page_of_usage_costs_its_node_its_numbers_and_nobody_else_anything(
    asked_at_once: Attacked, nodes: dict[str, Node]
) -> None:
    hostile = [nodes[name] for name in ATTACKS]
    target = asked_at_once
    with target.witnessed() as seen, watched_memory(target) as grown:
        for node in hostile:
            node.begin.set()
        eventually(
            lambda: all(node.attacked and not node.active for node in hostile),
            within_s=60, what="all attacks were read or cut",
        )  # fmt: skip
        usage = eventually(lambda: shown_good(target), within_s=30, what="all others have numbers")
    for one in usage.values():
        assert abs(int(one["usage"]["cpu"].removesuffix("n")) - 5e8) < 1e6, one
    assert max(grown) <= MEMORY_BYTES, f"grew by {max(grown) / 2**20:.0f} MiB; {seen}"
    harness.no_long_stall(seen)
    # The attackers compute on this machine, too: a p99 says little while all of them send.
    harness.others_undisturbed(seen, limit_ms=250.0)


def test_an_answer_that_upgrades_unasked_is_not_relayed(target: Attacked) -> None:
    answer = target.ask(OPERATOR, "GET", f"{NODES}/drip/proxy/unasked")
    assert answer.status == 503, answer.body
    assert b"it answered 101" in answer.body


def test_every_connection_header_is_heeded_both_ways(target: Attacked) -> None:
    with target.open() as connection:
        connection.sendall(
            f"GET {NODES}/drip/proxy/connections HTTP/1.1\r\nHost: x\r\nConnection: X-Mine\r\n"
            f"Authorization: Bearer {harness.token(OPERATOR)}\r\nConnection: close, X-Yours\r\n"
            "X-Mine: 1\r\nX-Yours: 2\r\nX-Ours: 3\r\n\r\n".encode()
        )
        answer = b""
        while data := connection.recv(65536):
            answer += data
    head, _, asked = answer.lower().partition(b"\r\n\r\n")
    assert b"x-four: 4" in head and b"x-ours: 3" in asked
    for name in (b"x-one", b"x-two", b"x-three"):
        assert name not in head
    for name in (b"x-mine", b"x-yours"):
        assert name not in asked


def test_a_log_is_text_whatever_the_node_calls_it(target: Attacked) -> None:
    answer = target.ask(NEIGHBOUR, "GET", f"/api/v1/namespaces/{NEIGHBOUR}/pods/p/log")
    assert (answer.status, answer.body) == (200, b"<script>")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert "Set-Cookie" not in answer.headers


def test_a_node_cannot_make_its_status_a_burden(target: Attacked) -> None:
    images = [{"names": [f"registry.example/{n:0200d}"], "sizeBytes": 1} for n in range(2000)]
    answer = target.ask(
        OPERATOR, "PATCH", f"{NODES}/drip/status", {"status": {"images": images}},
        Content_Type=MERGE,
    )  # fmt: skip
    assert answer.status == 422, answer.body
    assert b"may have at most 262144" in answer.body
