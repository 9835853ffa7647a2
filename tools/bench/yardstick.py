"""The current speed of this machine: an aiohttp server with empty responses, over TLS on one core.

The limits in seconds were set on a machine where such a response takes about 32 µs of CPU; a
virtual machine with busy neighbours may take three times that. Printed before and after the
benchmarks, to put their figures in proportion.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from orch.component.pki import Authority, KeyPair, Subject
from tools.bench import http_load, processes
from tools.bench.apiserver import client_context, one_core

REFERENCE_USEC = 32.0
CLIENTS = 32
SECONDS = 2.0


def main() -> None:
    used_usec = measure()
    print(
        f"yardstick: an empty answer of aiohttp over TLS takes {used_usec:.0f} µs of CPU,"
        f" {used_usec / REFERENCE_USEC:.1f} times what it took where the limits were written",
        flush=True,
    )


def measure() -> float:
    """µs of the server's CPU per request, on a persistent connection."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        authority = Authority(Path(name), now=datetime.now(UTC))
        pair = authority.issue(Subject("yardstick", "yardstick", (), ("127.0.0.1",)))
        cores = os.sched_getaffinity(0)
        with one_core():
            server = subprocess.Popen(
                [sys.executable, "-m", __name__, pair.cert_file, pair.key_file],
                stdout=subprocess.PIPE,
                text=True,
            )
        try:
            return asyncio.run(_load(server, authority.ca_file, pair))
        finally:
            server.kill()
            server.communicate()
            os.sched_setaffinity(0, cores)


async def _load(server: subprocess.Popen[str], ca_file: str, pair: KeyPair) -> float:
    assert server.stdout is not None
    port = int(server.stdout.readline())
    ask = http_load.request("GET", "/")
    used_s = processes.cpu_s(server.pid)
    _, requests = await http_load.closed_loop(
        port, [lambda _answered: ask] * CLIENTS, SECONDS, client_context(ca_file, pair)
    )
    return 1e6 * (processes.cpu_s(server.pid) - used_s) / requests


async def serve(cert_file: str, key_file: str) -> None:
    """Print the port and answer until killed."""
    app = web.Application()
    app.router.add_get("/", _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


async def _answer(_request: web.Request) -> web.Response:
    return web.Response(body=b"hello")


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
