"""An attacker's requests over many connections, as fast as they are answered; its own process.

Its settings come as one line of JSON on standard input: `port`, `ca`, `requests` (texts, given to
the connections in turn), `clients` and `seconds`. It prints how often it got which status; 0 is a
connection that was cut. It leaves the processor to others: who is attacked shall be late by the
server's doing only.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.attacks.harness import Attacked, line_of
from tests.e2e.harness import ROOT

NICENESS = 15
_END_S = 240.0  # beyond the flood, for its last answers


@contextmanager
def flooding(
    target: Attacked, requests: Sequence[bytes], clients: int, seconds: float
) -> Iterator[Counter[int]]:
    """The answers are filled in when the context ends; it lasts as long as the flood."""
    settings = {
        "port": target.port, "ca": target.server.ca_file, "clients": clients, "seconds": seconds,
        "requests": [request.decode() for request in requests],
    }  # fmt: skip
    seen: Counter[int] = Counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.attacks.flood"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()
        assert line_of(process) == b"ready\n"
        yield seen
        reported = json.loads(line_of(process, within_s=seconds + _END_S))
        seen.update({int(status): count for status, count in reported.items()})
    finally:
        process.kill()
        process.communicate()


class Client:
    """One connection, opened again whenever it is cut."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port = port
        self._context = context
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._ends is None:
            self._ends = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._context)
        return self._ends

    async def ask(self, request: bytes) -> int:
        """The status; 0 when the connection was cut."""
        try:
            reader, writer = await self.open()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            if length:
                await reader.readexactly(int(length))
            else:
                self.close()  # a stream: once it is open, another is opened
            return int(head.split()[1])
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0

    def close(self) -> None:
        if self._ends is not None:
            self._ends[1].transport.abort()
            self._ends = None


async def flood(settings: dict[str, Any]) -> Counter[int]:
    context = ssl.create_default_context(cafile=settings["ca"])
    requests = [request.encode() for request in settings["requests"]]
    clients = [Client(settings["port"], context) for _ in range(settings["clients"])]
    for client in clients:
        await client.open()
    print("ready", flush=True)
    seen, end_s = Counter[int](), time.monotonic() + settings["seconds"]

    async def repeat(number: int) -> None:
        while time.monotonic() < end_s:
            seen[await clients[number].ask(requests[number % len(requests)])] += 1
        clients[number].close()

    await asyncio.gather(*map(repeat, range(len(clients))))
    return seen


if __name__ == "__main__":
    os.nice(NICENESS)
    print(json.dumps(asyncio.run(flood(json.loads(sys.stdin.readline())))))
