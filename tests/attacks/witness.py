"""Asks a server that is attacked as others do; a process of its own, started by `harness.py`.

Its settings come as one line of JSON on standard input. It says "ready" when everything was asked
once, and reports as JSON when standard input ends.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import statistics
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

PING_S = 0.005
LEASE_S = 0.5
TENANT_S = 0.02
GAUGE_S = 0.05
YARDSTICK = json.dumps([{"name": str(number), "n": number} for number in range(1000)])
YARDSTICK_MS = 0.25  # what reading it takes on a quick machine
_TIMEOUT_S = 60.0
_TEXTS = 3
_TICKS = os.sysconf("SC_CLK_TCK")
_LEASES = "/apis/coordination.orch.io/v1/namespaces/orch-node-lease/leases"


class Witness:
    """Each role asks in a thread of its own until `stop`."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._stalls_ms: list[float] = [0.0]
        self._read_ms: list[float] = []
        self._disk_ms: list[float] = [0.0]
        self._tenant_ms: list[float] = []
        self._lease_late_s = 0.0
        self._refused = self._renewals_refused = self._errors = 0
        self._texts: list[str] = []
        self._lease: dict[str, Any] = {}
        self._content = 0

    def run(self) -> None:
        roles = (
            (self._ping, PING_S, True), (self._renew, LEASE_S, True), (self._use, TENANT_S, False),
            (self._gauge, GAUGE_S, False),
        )  # fmt: skip
        ready = [threading.Event() for _ in roles]
        threads = [
            threading.Thread(target=self._repeat, args=(*role, event), daemon=True)
            for role, event in zip(roles, ready, strict=True)
        ]
        for thread in threads:
            thread.start()
        if all(event.wait(_TIMEOUT_S) for event in ready):
            self._forget()
            print("ready", flush=True)
        sys.stdin.read()
        self._stop.set()
        for thread in threads:
            thread.join(_TIMEOUT_S)
        print(json.dumps(self._report()), flush=True)

    def _forget(self) -> None:
        """The first of each took a handshake beside three others, before anybody attacked."""
        self._stalls_ms[1:] = []
        self._tenant_ms.clear()
        self._lease_late_s = 0.0

    def _report(self) -> dict[str, Any]:
        return {
            "stall_ms": max(self._stalls_ms),
            "slowness": slowness(self._read_ms), "disk_ms": max(self._disk_ms),
            "p99_ms": p99(self._tenant_ms), "lease_late_s": self._lease_late_s,
            "requests": len(self._tenant_ms), "refused": self._refused,
            "renewals_refused": self._renewals_refused,
            "errors": self._errors, "texts": self._texts,
        }  # fmt: skip

    def _repeat(
        self,
        role: Callable[[http.client.HTTPSConnection], None],
        interval_s: float,
        as_node: bool,
        ready: threading.Event,
    ) -> None:
        connection = self._connect(as_node)
        while not self._stop.is_set():
            try:
                role(connection)
            except (OSError, http.client.HTTPException) as error:
                self._errors += 1
                self._note(f"{role.__name__}: {error!r}")
                connection.close()
                connection = self._connect(as_node)
            ready.set()
            self._stop.wait(interval_s)
        connection.close()

    def _connect(self, as_node: bool) -> http.client.HTTPSConnection:
        settings = self._settings
        context = ssl.create_default_context(cafile=settings["ca"])
        if as_node:
            context.load_cert_chain(settings["certificate"], settings["key"])
        return http.client.HTTPSConnection(
            "127.0.0.1", settings["port"], timeout=_TIMEOUT_S, context=context
        )

    def _ask(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: object = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]:  # fmt: skip
        sent = None if body is None else json.dumps(body).encode()
        connection.request(
            method, path, sent, {"Content-Type": "application/json", **(headers or {})}
        )
        answer = connection.getresponse()
        data = answer.read()
        if answer.status >= 300 and not (method == "POST" and answer.status == 409):
            self._refused += 1
            self._renewals_refused += path.startswith(_LEASES)
            self._note(f"{method} {path}: {answer.status} {data[:200]!r}")
        return answer.status, data

    def _ping(self, connection: http.client.HTTPSConnection) -> None:
        pid = self._settings["pid"]
        stolen, computed, waited = _stolen_s(), computed_s(pid), _waited_s()
        began_s = time.perf_counter()
        self._ask(connection, "GET", "/livez")
        took_s = time.perf_counter() - began_s
        own_s = _waited_s() - waited
        stall_s = min(took_s - own_s, computed_s(pid) - computed) - (_stolen_s() - stolen)
        self._stalls_ms.append(1000 * stall_s)

    def _renew(self, connection: http.client.HTTPSConnection) -> None:
        began_s = time.monotonic()
        path = f"{_LEASES}/{self._settings['node']}"
        while not self._stop.is_set():
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            if self._lease:
                self._lease["spec"]["renewTime"] = now
                status, data = self._ask(connection, "PUT", path, self._lease)
            else:
                spec = {"holderIdentity": self._settings["node"], "leaseDurationSeconds": 40}
                made = {"metadata": {"name": self._settings["node"]}, "spec": spec}
                status, data = self._ask(connection, "POST", _LEASES, made)
            if status == 409:
                status, data = self._ask(connection, "GET", path)
            if status < 300:
                self._lease = json.loads(data)
                break
            self._stop.wait(0.2)
        self._lease_late_s = max(self._lease_late_s, time.monotonic() - began_s)

    def _use(self, connection: http.client.HTTPSConnection) -> None:
        headers = {"Authorization": f"Bearer {self._settings['token']}"}
        path = f"/api/v1/namespaces/{self._settings['namespace']}/configmaps"
        self._content += 1
        body = {"metadata": {"name": "witness"}, "data": {"n": str(self._content)}}
        for method in ("PUT", "GET"):
            if self._content == 1:
                self._ask(connection, "POST", path, body, headers)
            waited, began_s = _waited_s(), time.perf_counter()
            sent = body if method == "PUT" else None
            self._ask(connection, method, f"{path}/witness", sent, headers)
            took_s = time.perf_counter() - began_s - (_waited_s() - waited)
            self._tenant_ms.append(1000 * took_s)

    def _gauge(self, _connection: http.client.HTTPSConnection) -> None:
        """How quick this machine and its disk are just now; it asks nobody."""
        self._read_ms.append(yardstick_ms())
        waited, began_s = _waited_s(), time.perf_counter()
        with Path(self._settings["directory"], "witness").open("wb") as file:
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
        took_s = time.perf_counter() - began_s - (_waited_s() - waited)
        self._disk_ms.append(1000 * took_s)

    def _note(self, text: str) -> None:
        if len(self._texts) < _TEXTS:
            self._texts.append(text)


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)] if values else 0.0


def yardstick_ms() -> float:
    """What a fixed piece of work takes on this machine just now."""
    began_s = time.thread_time()
    json.loads(YARDSTICK)
    return 1000 * (time.thread_time() - began_s)


def slowness(yardsticks_ms: list[float]) -> float:
    """How many times longer than a quick machine this one computes; 1 at least."""
    return max(1.0, statistics.median(yardsticks_ms) / YARDSTICK_MS)


def computed_s(pid: int, thread: object = "*") -> float:
    """Processor time of all threads of the process until now, or of one."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob(f"{thread}/schedstat"):
        try:
            total += int(path.read_text().split()[0])
        except OSError:
            continue  # the thread ended
    return total / 1e9


def _stolen_s() -> float:
    """Processor time that the host of this machine took; to the kernel, whoever ran had it."""
    with Path("/proc/stat").open("rb") as file:
        return int(file.readline().split()[8]) / _TICKS


def _waited_s() -> float:
    """How long this thread was ready to run and another had its processor."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


if __name__ == "__main__":
    sys.setswitchinterval(0.0005)
    Witness(json.loads(sys.stdin.readline())).run()
