"""An API server under attack: the program as a process, its users, and a witness beside it.

Users have tokens; nodes and the administrator have certificates. The witness (`witness.py`, a
process of its own) does what others do meanwhile: a node pings and renews its Lease, a tenant reads
and writes. Traffic goes to 127.0.0.1 only.
"""

from __future__ import annotations

import http.client
import json
import selectors
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from orch.component.pki import KeyPair, Subject
from tests.e2e import apiserver
from tests.e2e.apiserver import ApiServer
from tests.e2e.harness import ROOT, eventually

RBAC = "/apis/rbac.authorization.orch.io/v1"
NODE = "witness-node"
AT_ANY_RATE = "--tenant-changes-per-second=0"  # for bounds that do not need one
MALLORY = "mallory"  # no rights at all
TENANT = "tenant"  # `edit` in the namespace `tenant`, and nowhere else
NEIGHBOUR = "neighbour"  # likewise in `neighbour`: the witness' user
OPERATOR = "operator"  # the administrator, with a token

PROGRAM = ("-m", "orch.server.main")  # anew: its memory and its time are measured

_GROUPS = {OPERATOR: "system:masters"}
_START_S = 120.0  # longer than the witness waits for an answer
_END_S = 240.0


@dataclass
class Answer:
    """One answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Seen:
    """What the witness saw. Times in ms, but `lease_late_s`.

    `stall_ms`: the longest time for which the server's threads computed between a ping and its
    answer, never more than that time by the clock: other programs on the machine do not count.
    `slowness`: how many times longer than a quick machine this one computed meanwhile.
    `disk_ms`: the longest time that a small file beside the server's took to reach the disk.
    """

    stall_ms: float = 0.0
    slowness: float = 1.0
    disk_ms: float = 0.0
    p99_ms: float = 0.0  # the tenant's reads and writes
    lease_late_s: float = 0.0  # the longest gap between two renewals, beyond the interval
    requests: int = 0  # the tenant's
    refused: int = 0  # answers to tenant and node other than 2xx
    renewals_refused: int = 0  # of them, the node's
    errors: int = 0  # connections that broke or gave no answer
    texts: list[str] = field(default_factory=list)  # of the first refusals and errors


@dataclass
class Attacked:
    """A running server, and how each user speaks to it."""

    server: ApiServer
    node: KeyPair

    @property
    def port(self) -> int:
        return self.server.port

    def context(self, pair: KeyPair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.server.ca_file)
        if pair is not None:
            context.load_cert_chain(pair.cert_file, pair.key_file)
        return context

    def ask(self, user: str, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """One request on a connection of its own; `body` is bytes, or becomes JSON.

        Headers are named with `_` for `-`: `Content_Type="application/json-patch+json"`.
        """
        sent = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if sent is not None:
            named.setdefault("Content-Type", "application/json")
        if user:
            named.setdefault("Authorization", f"Bearer {token(user)}")
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=120, context=self.context()
        )
        try:
            connection.request(method, path, sent, named)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def make(self, path: str, *objects: object) -> None:
        """Create objects as the operator; it must succeed."""
        for made in objects:
            answer = self.ask(OPERATOR, "POST", path, made)
            assert answer.status in (201, 409), answer.body

    def make_small(self, path: str, count: int) -> None:
        """So many hundreds of small objects as the tenant, a hundred in a row."""
        body = b'{"metadata":{"generateName":"l"}}'
        request = head(TENANT, "POST", path, len(body)) + body
        with self.open() as connection:
            for _ in range(count // 100):
                connection.sendall(100 * request)
                received = b""
                while received.count(b"HTTP/1.1 201") < 100:
                    received += connection.recv(65_536)

    def open(self, pair: KeyPair | None = None, *, timeout_s: float = 30) -> ssl.SSLSocket:
        """A connection to write anything to; the caller closes it."""
        raw = socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)
        return self.context(pair).wrap_socket(raw, server_hostname="127.0.0.1")

    def begin(self, user: str, method: str, path: str, length: int) -> ssl.SSLSocket:
        """A request whose head says `length` bytes and whose body does not come."""
        connection = self.open()
        connection.sendall(head(user, method, path, length))
        return connection

    def resident_bytes(self) -> int:
        """The memory of the server's process that no other shares."""
        return int(psutil.Process(self.server.process.pid).memory_full_info().uss)

    @contextmanager
    def witnessed(self) -> Iterator[Seen]:
        """Let the witness look on; what it saw is filled in when the context ends."""
        seen = Seen()
        settings = {
            "port": self.port, "pid": self.server.process.pid, "ca": self.server.ca_file,
            "certificate": self.node.cert_file, "key": self.node.key_file, "node": NODE,
            "namespace": NEIGHBOUR, "token": token(NEIGHBOUR),
            "directory": str(self.server.directory),
        }  # fmt: skip
        with subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.witness"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            process.stdin.flush()
            try:
                assert line_of(process) == b"ready\n", "the witness could not begin"
                yield seen
            finally:
                try:
                    reported, _ = process.communicate(timeout=_END_S)  # it reports then
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise
        vars(seen).update(json.loads(reported))


def line_of(process: subprocess.Popen[bytes], *, within_s: float = _START_S) -> bytes:
    """The next line that a program prints: b"" at its end; fails when none comes.

    The program must print whole lines, and this must be all that reads them.
    """
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        printed = selector.select(within_s)
    assert printed, f"{process.args} printed nothing for {within_s:g} s"
    return process.stdout.readline()


def token(user: str) -> str:
    return f"token-of-{user}"


def head(user: str, method: str, path: str, length: int, *more: str) -> bytes:
    """The head of a request for JSON of `length` bytes."""
    lines = [
        f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token(user)}",
        "Content-Type: application/json", f"Content-Length: {length}", *more, "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode()


@contextmanager
def attacked(
    directory: Path, *flags: str, users: tuple[str, ...] = (), program: Sequence[str] = PROGRAM
) -> Iterator[Attacked]:
    """A server with `users` beside the named ones."""
    tokens = directory / "tokens.csv"
    known = (MALLORY, TENANT, NEIGHBOUR, OPERATOR, *users)
    tokens.write_text(
        "".join(f'{token(user)},{user},{user},"{_GROUPS.get(user, "")}"\n' for user in known)
    )
    tokens.chmod(0o600)
    flags = (f"--token-auth-file={tokens}", *flags)
    with apiserver.running(directory, *flags, program=program) as server:
        node = server.authority.issue(Subject("node", f"system:node:{NODE}", ("system:nodes",)))
        target = Attacked(server, node)
        _furnish(target)
        yield target


def _furnish(target: Attacked) -> None:
    for name in (TENANT, NEIGHBOUR):
        target.make("/api/v1/namespaces", {"metadata": {"name": name}})
        grant(target, name, namespace=name, role="edit")
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"  # comes by itself
        eventually(
            lambda path=account: target.ask(OPERATOR, "GET", path).status == 200,
            within_s=60, what=f"{name} is furnished", poll_s=0.02,
        )  # fmt: skip
    target.make("/api/v1/nodes", {"metadata": {"name": NODE}})


def grant(target: Attacked, user: str, *, namespace: str, role: str) -> None:
    """Bind a user to a ClusterRole in one namespace."""
    group = "rbac.authorization.orch.io"
    binding = {
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    target.make(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)


def others_served(seen: Seen) -> None:
    """Fails when the node or the neighbour was refused, cut off, or had a Lease that was late. It
    holds beside other tests, too.
    """
    assert seen.requests > 0, seen
    assert seen.refused == 0, seen
    assert seen.errors == 0, seen
    assert seen.lease_late_s <= 5.0, seen


def others_undisturbed(seen: Seen, *, limit_ms: float) -> None:
    """Fails when the node or the neighbour felt the attack: issue of fairness, in figures.

    `limit_ms`: a later p99 is late, on a machine as quick as the witness' yardstick, with a disk
    that takes no time. A write waits for two commits at most.
    """
    others_served(seen)
    within_ms = limit_ms * seen.slowness + 2 * seen.disk_ms
    assert seen.p99_ms <= within_ms, f"beyond {within_ms:.0f} ms: {seen}"


STALL_LIMIT_MS = 50.0


def no_long_stall(seen: Seen) -> None:
    """Fails when one piece of work kept the server from everything else for too long."""
    limit_ms = STALL_LIMIT_MS * seen.slowness
    assert seen.stall_ms <= limit_ms, f"a stall of {seen.stall_ms:.0f} ms: {seen}"
