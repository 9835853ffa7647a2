"""A node's agent as far as `kubectl logs` and `kubectl top` see one, in a thread."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

from orch.component.pki import KeyPair

LINES = [f"line {number}" for number in range(1, 6)]


_STARTED = int(time.time() * 1000)


class _Handler(BaseHTTPRequestHandler):
    """Every container has written LINES; the node and every listed pod use half a core."""

    pods: ClassVar[list[tuple[str, str]]] = []  # namespace and name of those that use anything

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path.startswith("/containerLogs/"):
            self._answer(self._log({k: v[0] for k, v in parse_qs(url.query).items()}))
        elif url.path == "/metrics/resource":
            self._answer(self._usage())
        else:
            self.send_error(404)

    def _log(self, query: dict[str, str]) -> str:
        lines = LINES[-int(query.get("tailLines", len(LINES))) :]
        if "timestamps" in query:
            lines = [f"2026-01-01T00:00:00.000000000Z {line}" for line in lines]
        return "".join(f"{line}\n" for line in lines)

    def _usage(self) -> str:
        stamp = int(time.time() * 1000)
        used_s = (stamp - _STARTED) / 2000
        page = f"node_cpu_usage_seconds_total {used_s:.4f} {stamp}\n"
        page += f"node_memory_working_set_bytes 104857600 {stamp}\n"
        for namespace, pod in self.pods:
            labels = f'{{container="c",namespace="{namespace}",pod="{pod}"}}'
            page += f"container_cpu_usage_seconds_total{labels} {used_s:.4f} {stamp}\n"
            page += f"container_memory_working_set_bytes{labels} 1048576 {stamp}\n"
        return page

    def _answer(self, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Not on the test's output."""


@contextmanager
def serving(pair: KeyPair) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """The port, and the list of pods that use something, to be filled."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert_file, pair.key_file)
    handler = type("Handler", (_Handler,), {"pods": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], handler.pods  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
