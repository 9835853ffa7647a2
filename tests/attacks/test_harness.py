"""The witness sees what it is for: work that keeps a server from everything else, and refusals.

The other tests of this folder would pass with a witness that sees nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.attacks import harness
from tests.attacks.harness import Attacked
from tests.e2e.harness import eventually

STALLING = """
import http.server, ssl, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pings = 0
    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Handler.pings += self.path == "/livez"
        long = self.path == "/livez" and Handler.pings % 20 == 0
        end = time.thread_time() + 0.3 * long
        while time.thread_time() < end:
            pass
        self.send_response(200)
        self.send_header("Content-Length", "22")
        self.end_headers()
        self.wfile.write(b'{"spec":{},"status":0}')
        if long:
            print("computed", flush=True)
    do_GET = do_PUT = do_POST = answer
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(*sys.argv[1:])
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with harness.attacked(tmp_path_factory.mktemp("attacked")) as running:
        yield running


def test_a_stopped_server_makes_the_lease_late(target: Attacked) -> None:
    pid = target.server.process.pid
    with target.witnessed() as seen:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(6)
        os.kill(pid, signal.SIGCONT)
    assert seen.lease_late_s > 5.0
    with pytest.raises(AssertionError, match="lease_late_s"):
        harness.others_undisturbed(seen, limit_ms=1e6)
    on_time = replace(seen, lease_late_s=0.0)
    with pytest.raises(AssertionError, match="beyond 1 ms"):
        harness.others_undisturbed(replace(on_time, slowness=1.0, disk_ms=0.0), limit_ms=1.0)
    assert seen.disk_ms > 0.0
    harness.others_undisturbed(replace(on_time, disk_ms=seen.p99_ms / 2), limit_ms=1.0)


def test_a_neighbour_who_is_refused_is_noticed(target: Attacked) -> None:
    path = f"{harness.RBAC}/namespaces/{harness.NEIGHBOUR}/rolebindings/{harness.NEIGHBOUR}-edit"
    before = refusals(target)
    with target.witnessed() as seen:
        assert target.ask(harness.OPERATOR, "DELETE", path).status == 200
        eventually(lambda: refusals(target) > before, within_s=60, what="the witness is refused")
    harness.grant(target, harness.NEIGHBOUR, namespace=harness.NEIGHBOUR, role="edit")
    assert seen.refused > 0
    assert "403" in seen.texts[0]
    with pytest.raises(AssertionError, match="403"):
        harness.others_served(seen)


def refusals(target: Attacked) -> int:
    """How often the server has refused somebody a right."""
    lines = target.ask(harness.OPERATOR, "GET", "/metrics").body.decode().splitlines()
    counted = [line for line in lines if line.startswith("apiserver_request_total{")]
    return sum(int(float(line.split()[-1])) for line in counted if 'code="403"' in line)


def test_work_that_takes_long_is_a_stall(target: Attacked) -> None:
    """A stand-in of the server, which computes for 0.3 s before some answers."""
    pki = target.server.directory / "pki"
    with subprocess.Popen(
        [sys.executable, "-c", STALLING, str(pki / "server.crt"), str(pki / "server.key")],
        stdout=subprocess.PIPE,
    ) as process:
        server = replace(target.server, process=process, port=int(harness.line_of(process)))
        try:
            with replace(target, server=server).witnessed() as seen:
                assert harness.line_of(process) == b"computed\n"
        finally:
            process.terminate()
    assert 200 < seen.stall_ms < 600
    seen = replace(seen, slowness=1.0)
    with pytest.raises(AssertionError, match="a stall of"):
        harness.no_long_stall(seen)
