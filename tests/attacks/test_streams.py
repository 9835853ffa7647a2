"""Streams into pods as an attack: many of them, readers that do not read, rights that do not reach.

The node's agent is played here: it agrees to every upgrade and then sends without end, or answers
what it is asked over plain HTTP.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from nodeagent import container_streams
from orch.component.pki import Authority, Subject
from orch.component.process import clock
from orch.server.nodes.agent_streams import BOUNDS
from tests.attacks import harness
from tests.attacks.harness import MALLORY, NEIGHBOUR, OPERATOR, RBAC, TENANT, Attacked, head
from tests.e2e.harness import eventually

pytestmark = pytest.mark.slow

MEMORY_BYTES = 48 * 2**20  # that all streams of a tenant whose clients do not read may take
NODE = "streamed"
EXEC = f"/api/v1/namespaces/{TENANT}/pods/p/exec?command=yes&stdout=1"
LOG = f"/api/v1/namespaces/{TENANT}/pods/p/log"
AGREED = b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
Send = Callable[[bytes], None]


def endless(send: Send) -> None:
    send(AGREED)
    while True:
        send(bytes(65536))


def tiny_records(send: Send) -> None:
    send(AGREED)
    while True:
        send(b"x")


def deaf(send: Send) -> None:
    send(AGREED)
    while True:
        send(b"x")
        time.sleep(0.1)


def endless_head(send: Send) -> None:
    send(b"HTTP/1.1 101 S\r\n")
    while True:
        send(b"X-A: " + b"a" * 8000 + b"\r\n")


def trickled_head(send: Send) -> None:
    for byte in b"HTTP/1.1 101 S\r\nX: " + b"a" * 300:
        send(bytes((byte,)))
        time.sleep(0.2)


def rubbish(send: Send) -> None:
    send(b"HTTP/1.1 101 S\r\nUpgrade: SPDY/3.1\r\nUpgrade\x00: h2c\r\n\r\n" + bytes(65536))


class Agent:
    """Agrees to upgrades and sends without end, like its logs; other answers are empty."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.asked: list[bytes] = []
        self.streams = 0
        self.talk = endless  # on a stream
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(accepted,), daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with suppress(OSError), self._context.wrap_socket(accepted, server_side=True) as secured:
            while head := _head(secured):
                self.asked.append(head.split(b"\r\n")[0])
                if b"pgrade: SPDY" not in head and b"containerLogs" not in head:
                    secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                    continue
                self.streams += 1
                try:
                    self.talk(secured.sendall)
                finally:
                    self.streams -= 1

    def close(self) -> None:
        self._listener.close()


def _head(connection: ssl.SSLSocket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        data = connection.recv(4096)
        if not data:
            return b""
        head += data
    return head


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Attacked, Agent]]:
    directory = tmp_path_factory.mktemp("streams")
    authority = Authority(directory / "pki", now=clock.utc_now())
    pair = authority.issue(Subject("agent", "agent", (), (NODE,)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    agent = Agent(context)
    flags = (
        "--node-proxy-allow-loopback",
        f"--nodeagent-certificate-authority={authority.ca_file}",
    )
    with harness.attacked(directory, *flags) as target:
        target.make("/api/v1/nodes", {"metadata": {"name": NODE}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"nodeagentEndpoint": {"Port": agent.port}},
        }
        patch = "application/merge-patch+json"
        path = f"/api/v1/nodes/{NODE}/status"
        target.ask(OPERATOR, "PATCH", path, {"status": status}, Content_Type=patch)
        spec = {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]}
        target.make(f"/api/v1/namespaces/{TENANT}/pods", {"metadata": {"name": "p"}, "spec": spec})
        yield target, agent
    agent.close()


def opened(
    target: Attacked, user: str, path: str = EXEC, method: str = "POST", timeout_s: float = 30
) -> tuple[ssl.SSLSocket, int]:
    """A connection that asked for an upgrade, of which nothing more than the status is read."""
    connection = target.open(timeout_s=timeout_s)
    lines = [
        f"{method} {path} HTTP/1.1", "Host: h", f"Authorization: Bearer {harness.token(user)}",
        "Connection: Upgrade", "Upgrade: SPDY/3.1", "", "",
    ]  # fmt: skip
    connection.sendall("\r\n".join(lines).encode())
    return connection, int(connection.recv(12)[9:])


@pytest.mark.alone
def test_streams_that_nobody_reads_take_no_memory_nobodys_turn_and_not_all_of_a_node(
    world: tuple[Attacked, Agent],
) -> None:
    target, agent = world
    harness.grant(target, NEIGHBOUR, namespace=TENANT, role="edit")
    before = target.resident_bytes()
    with ExitStack() as ends:
        with target.witnessed() as seen:
            statuses = []
            for _ in range(BOUNDS.of_user + 4):
                connection, status = opened(target, TENANT)
                ends.callback(connection.close)
                statuses.append(status)
            time.sleep(3)
            grown = target.resident_bytes() - before
        assert statuses == [101] * BOUNDS.of_user + [429] * 4
        assert agent.streams == BOUNDS.of_user
        assert grown < MEMORY_BYTES, f"{grown / 2**20:.0f} MiB"
        # To its agent all are one user's: another tenant gets half of the rest, and some is left.
        assert 0 < _until_refused(target, NEIGHBOUR, ends) <= BOUNDS.of_user * 5 // 8
        connection, status = opened(target, OPERATOR)
        ends.callback(connection.close)
        assert status == 101
        assert BOUNDS.behind_one == container_streams.BOUNDS.of_user
    harness.others_undisturbed(seen, limit_ms=250.0)  # each stream takes two handshakes
    harness.no_long_stall(seen)
    eventually(lambda: agent.streams == 0, within_s=20, what="the agent's ends are closed")


def test_the_end_of_a_client_is_seen_though_its_node_takes_nothing(
    world: tuple[Attacked, Agent],
) -> None:
    """Nothing more is read of such a client: its stream stayed for a minute."""
    target, agent = world
    agent.talk = deaf
    try:
        connection, status = opened(target, TENANT, timeout_s=3)
        with connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert status == 101
            with suppress(TimeoutError):
                while True:
                    connection.sendall(bytes(65536))
            assert agent.streams == 1
        eventually(lambda: agent.streams == 0, within_s=20, what="its stream ends")
    finally:
        agent.talk = endless


def _until_refused(target: Attacked, user: str, ends: ExitStack) -> int:
    for number in range(BOUNDS.of_user + 1):
        connection, status = opened(target, user)
        ends.callback(connection.close)
        if status == 429:
            return number
        assert status == 101
    raise AssertionError(f"{user} is not bounded")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("part", ["exec", "attach", "portforward"])
def test_a_right_to_read_opens_no_stream(
    world: tuple[Attacked, Agent], part: str, method: str
) -> None:
    """Neither at the pod nor through the node, where a GET reads and acts nowhere."""
    target, agent = world
    reading(target, MALLORY)
    agent.asked.clear()
    for path in (
        EXEC.replace("exec", part),
        f"/api/v1/nodes/{NODE}/proxy/{part}/{TENANT}/p/c?command=id&output=1",
    ):
        connection, status = opened(target, MALLORY, path, method)
        connection.close()
        assert status in (400, 403), path
    assert agent.asked == []


def reading(target: Attacked, user: str) -> None:
    group = "rbac.authorization.orch.io"
    rule: dict[str, Any] = {"verbs": ["get", "list", "watch"], "apiGroups": ["*"],
                            "resources": ["*"]}  # fmt: skip
    target.make(f"{RBAC}/clusterroles", {"metadata": {"name": "reads"}, "rules": [rule]})
    target.make(
        f"{RBAC}/clusterrolebindings",
        {
            "metadata": {"name": "reads"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "reads"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    )


def at_once(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


@pytest.mark.alone
@pytest.mark.parametrize(
    ("talk", "answer"),
    [(tiny_records, 101), (endless_head, 503), (trickled_head, 503), (rubbish, 503)],
)
def test_an_agent_that_means_harm_costs_little_beside_its_own_streams(
    world: tuple[Attacked, Agent], talk: Callable[[Send], None], answer: int
) -> None:
    """Records of a byte, before they were decrypted in turns: a stall of 154 ms, a late Lease."""
    target, agent = world
    before, statuses, over = target.resident_bytes(), [], time.monotonic() + 8
    agent.talk = talk

    def use() -> None:
        connection, status = opened(target, TENANT, timeout_s=60)
        statuses.append(status)
        with suppress(OSError), connection:
            while status == 101 and time.monotonic() < over and connection.recv(65536):
                pass

    try:
        with target.witnessed() as seen:
            at_once(60, use)
            grown = target.resident_bytes() - before
    finally:
        agent.talk = endless
    assert statuses == [answer] * 60
    assert grown < MEMORY_BYTES, f"{grown / 2**20:.0f} MiB"
    harness.others_served(seen)
    harness.no_long_stall(seen)
    eventually(lambda: agent.streams == 0, within_s=20, what="the agent's ends are closed")


@pytest.mark.alone
def test_logs_in_records_of_a_byte_cost_others_little(world: tuple[Attacked, Agent]) -> None:
    """Before they were decrypted in turns: others' p99 of 640 ms, a Lease 0.8 s late."""
    target, agent = world
    over, received = time.monotonic() + 8, []

    def tiny_logs(send: Send) -> None:
        send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while time.monotonic() < over:
            send(b"x")

    def read() -> None:
        with target.open(timeout_s=60) as connection:
            connection.sendall(head(TENANT, "GET", LOG, 0))
            while time.monotonic() < over and (data := connection.recv(65536)):
                received.append(len(data))

    agent.talk = tiny_logs
    try:
        with target.witnessed() as seen:
            at_once(20, read)
    finally:
        agent.talk = endless
    assert sum(received) > 20 * 100
    harness.others_served(seen)
    harness.no_long_stall(seen)
