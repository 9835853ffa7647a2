"""SubjectAccessReviews over TLS: a server on one core, clients on the others.

Each client is a process with a persistent connection that sends a prepared request and waits for
the response, so that the server is measured and not an HTTP library.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from orch.component.pki import Authority, KeyPair, Subject
from orch.component.process import clock
from tools.bench.processes import cpu_s

if TYPE_CHECKING:
    from tools.bench.authorizer import World

CLIENTS = 10
PACED_A_SECOND = 500
RBAC = "/apis/rbac.authorization.orch.io/v1"
REVIEWS = "/apis/authorization.orch.io/v1/subjectaccessreviews"


@dataclass(frozen=True)
class Target:
    """A client's address and credentials."""

    port: int
    pid: int
    ca_file: str
    user: KeyPair


class Connection:
    """A persistent connection with one request at a time."""

    def __init__(self, target: Target) -> None:
        context = ssl.create_default_context(cafile=target.ca_file)
        context.load_cert_chain(target.user.cert_file, target.user.key_file)
        plain = socket.create_connection(("127.0.0.1", target.port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain, server_hostname="localhost")

    def send(self, request: bytes) -> int:
        """The status of the answer, once it is complete."""
        self._socket.sendall(request)
        data = self._socket.recv(65536)
        while b"\r\n\r\n" not in data:
            data += self._socket.recv(65536)
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._socket.recv(65536)
        return int(head[9:12])


def request_of(path: str, body: Any) -> bytes:
    data = orjson.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def measure(directory: Path, world: World, *, seconds: float) -> None:
    """Print throughput at CLIENTS clients, and latency at a paced rate."""
    with _server(directory) as target:
        _fill(target, world)
        requests = [request_of(REVIEWS, _review(*question)) for question in world.questions]
        before_s = cpu_s(target.pid)
        rate, latencies = _load(target, requests, seconds, pace_s=0.0)
        each_us = (cpu_s(target.pid) - before_s) / len(latencies) * 1e6
        print(
            f"reviews over TLS, {CLIENTS} clients, server on one core: {rate:,.0f} a second,"
            f" p99 {_p99_ms(latencies):.1f} ms (limit ≥ 5,000 a second); {each_us:.0f} µs of the"
            f" server's CPU each, which is {1e6 / each_us:,.0f} a second of a whole core"
        )
        rate, latencies = _load(target, requests, seconds, pace_s=CLIENTS / PACED_A_SECOND)
        median = statistics.median(latencies) * 1e3
        print(
            f"reviews at {rate:,.0f} a second: p50 {median:.2f} ms, p99 {_p99_ms(latencies):.2f} ms"
            " (limit p99 ≤ 10 ms)"
        )


def _p99_ms(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98] * 1e3


@contextmanager
def _server(directory: Path) -> Iterator[Target]:
    """An API server pinned to the first core."""
    authority = Authority(directory / "pki", now=clock.utc_now())
    server = authority.issue(Subject("server", "server", (), ("localhost", "127.0.0.1")))
    user = authority.issue(Subject("admin", "admin", ("system:masters",)))
    port_file = directory / "port"
    command = [
        sys.executable, "-m", "orch.server.main", "--bind-address=127.0.0.1", "--secure-port=0",
        f"--port-file={port_file}", f"--data-dir={directory / 'data'}",
        f"--tls-cert-file={server.cert_file}", f"--tls-private-key-file={server.key_file}",
        f"--client-ca-file={authority.ca_file}",
    ]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    try:
        while not port_file.exists():
            time.sleep(0.05)
        yield Target(int(port_file.read_text()), process.pid, authority.ca_file, user)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _fill(target: Target, world: World) -> None:
    """Create the roles and bindings of the world, and their namespaces."""
    connection = Connection(target)
    namespaces = sorted({key.namespace for key in world.roles} - {""})
    bodies: list[tuple[str, Any]] = [
        ("/api/v1/namespaces", {"metadata": {"name": name}}) for name in namespaces
    ]
    for binding in world.bindings:
        place = (
            f"{RBAC}/namespaces/{binding.namespace}/" if binding.namespace else f"{RBAC}/cluster"
        )
        bodies.append((f"{place}roles", _role(binding.role.name, world.roles[binding.role])))
        bodies.append((f"{place}rolebindings", _binding(binding)))
    for path, body in bodies:
        status = connection.send(request_of(path, body))
        if status != 201:
            raise AssertionError(f"POST {path} was answered {status}")


def _role(name: str, rules: Any) -> Any:
    return {
        "metadata": {"name": name},
        "rules": [
            {"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources}
            for rule in rules
        ],
    }


def _binding(binding: Any) -> Any:
    return {
        "metadata": {"name": binding.name},
        "roleRef": {"kind": binding.role.kind, "name": binding.role.name},
        "subjects": [{"kind": subject.kind, "name": subject.name} for subject in binding.subjects],
    }


def _review(identity: Any, info: Any) -> Any:
    attributes = {
        name: getattr(info, name) for name in ("verb", "group", "namespace", "resource", "name")
    }
    return {
        "kind": "SubjectAccessReview",
        "apiVersion": "authorization.orch.io/v1",
        "spec": {
            "user": identity.name,
            "groups": identity.groups,
            "resourceAuthorizationAttributes": attributes,
        },
    }


def _load(
    target: Target, requests: list[bytes], seconds: float, *, pace_s: float
) -> tuple[float, list[float]]:
    """Answers per second, and the duration of each."""
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    barrier = fork.Barrier(CLIENTS)
    clients = [
        fork.Process(
            target=_client,
            args=(target, requests[number::CLIENTS], seconds, pace_s, barrier, answers),
        )
        for number in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    latencies: list[float] = []
    rate = 0.0
    for _ in clients:
        took_s, of_client = answers.get()
        rate += len(of_client) / took_s
        latencies += of_client
    for client in clients:
        client.join()
    return rate, latencies


def _client(
    target: Target, requests: list[bytes], seconds: float, pace_s: float, barrier: Any, answers: Any
) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores - {min(cores)} or cores)
    connection = Connection(target)
    connection.send(requests[0])
    barrier.wait()
    started = time.perf_counter()
    if pace_s:
        time.sleep(pace_s * (os.getpid() % CLIENTS) / CLIENTS)
    latencies: list[float] = []
    planned = time.perf_counter()
    while planned - started < seconds:
        sent = planned if pace_s else time.perf_counter()
        if connection.send(requests[len(latencies) % len(requests)]) != 201:
            raise AssertionError("a review was refused")
        latencies.append(time.perf_counter() - sent)
        planned = planned + pace_s if pace_s else time.perf_counter()
        if pace_s:
            time.sleep(max(planned - time.perf_counter(), 0))
    answers.put((time.perf_counter() - started, latencies))
