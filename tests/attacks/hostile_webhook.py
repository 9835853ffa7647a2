"""A webhook's server that keeps to no protocol; a process of its own, started by `hostile`.

Its path says how it answers a review: each name of `WAYS` is one. It prints its port, then, at the
end of standard input, how often each path was asked and how many requests waited at most. It
leaves the processor to others: who asks it shall be late by their own doing only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import json
import os
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from orch.component import tls
from orch.component.pki import Subject
from tests.attacks.harness import Attacked, line_of
from tests.e2e.harness import ROOT

NICENESS = 15
MIB = 2**20
ALLOW = {"allowed": True}
FORGED = "E1124 00:00:00.000000 forged: all is lost"
LINES = f"no\n{FORGED}\r\n\x1b[2J{FORGED}\u2028{FORGED}\x00"

Chunks = AsyncIterator[bytes]
Record = dict[str, Any]


def verdict(uid: str, response: Record, **more: Any) -> bytes:
    """A review's answer, as it should be but for `more`."""
    whole = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", **more}
    return json.dumps({"response": {"uid": uid, **response}, **whole}).encode()


def patch(*operations: Record) -> Record:
    text = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": text}


def message(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A whole HTTP answer."""
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


async def once(*chunks: bytes) -> Chunks:
    for chunk in chunks:
        yield chunk


async def after(seconds: float, chunk: bytes) -> Chunks:
    await asyncio.sleep(seconds)
    yield chunk


async def forever(start: bytes, each: bytes, pause_s: float = 0.0) -> Chunks:
    yield start
    while True:
        yield each
        await asyncio.sleep(pause_s)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"10000\r\n" + b" " * 65_536 + b"\r\n"
LONG = "x" * 60_000
DOUBLING = [{"op": "copy", "from": "/data", "path": f"/data/k{n}"} for n in range(40)]
COPIES = [{"op": "add", "path": "/data/a", "value": LONG}] + [
    {"op": "copy", "from": "/data/a", "path": f"/data/k{n}"} for n in range(9_900)
]
CONTAINERS = [
    {"op": "add", "path": "/spec/containers/0/args", "value": ["a"] * 900},
    *(
        {"op": "copy", "from": "/spec/containers/0", "path": "/spec/containers/-"}
        for _ in range(45)
    ),
]
SPREAD = [{"op": "add", "path": "/x", "value": ["a"] * 900}] + [
    {"op": "copy", "from": "/x", "path": f"/x{n}"} for n in range(50)
]
SHUFFLE = [
    {"op": op, "path": "/metadata/finalizers/0", **({"value": "a.b/c"} if op == "add" else {})}
    for _ in range(4_900)
    for op in ("add", "remove")
]


@functools.cache
def packed() -> bytes:
    """A body of 256 kB that unpacks to 256 MiB."""
    packer = zlib.compressobj(wbits=31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(256)) + packer.flush()


WAYS: dict[str, Callable[[str], Chunks]] = {
    "allows": lambda uid: once(message(verdict(uid, ALLOW))),
    "denies": lambda uid: once(message(verdict(uid, {"allowed": False}))),
    "is slow": lambda uid: after(0.5, message(verdict(uid, ALLOW))),
    "hangs": lambda _: after(3600, b""),
    "drips": lambda _: forever(HEAD + b"Content-Length: 9999\r\n\r\n", b" ", 0.05),
    "drips its head": lambda _: forever(HEAD, b"X-A: b\r\n", 0.05),
    "sends without end": lambda _: forever(CHUNKED, CHUNK),
    "sends tiny chunks": lambda _: forever(CHUNKED, b"1\r\n \r\n" * 10_000),
    "sends headers without end": lambda _: forever(HEAD, b"X-A: " + b"b" * 4_000 + b"\r\n"),
    "sends many headers": lambda uid: once(
        message(verdict(uid, ALLOW), *(f"X-{n}: b" for n in range(20_000)))
    ),
    "continues without end": lambda _: forever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000),
    "is a gigabyte": lambda _: once(HEAD + b"Content-Length: 1000000000\r\n\r\n", b" " * 4 * MIB),
    "is packed": lambda _: once(message(packed(), "Content-Encoding: gzip")),
    "is large and right": lambda uid: once(
        message(verdict(uid, {**ALLOW, "warnings": [',[{"' * 500_000]}))
    ),
    "has many values": lambda uid: once(
        message(verdict(uid, {**ALLOW, "warnings": ["a"] * 500_000}))
    ),
    "is deep": lambda _: once(message(b'{"response":' + b"[" * MIB + b"]" * MIB + b"}")),
    "has a long number": lambda _: once(message(b'{"response":1' + b"0" * MIB + b"}")),
    "redirects": lambda _: once(message(b"", "Location: /allows", status="307 Moved")),
    "redirects with an answer": lambda uid: once(
        message(verdict(uid, ALLOW), "Location: /allows", status="302 Found")
    ),
    "upgrades": lambda _: once(
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"
    ),
    "says nothing": lambda _: once(),
    "says half": lambda uid: once(message(verdict(uid, ALLOW))[:-10]),
    "is no web server": lambda _: once(b"\x16\x03\x01 SSH-2.0 \xff\xfe\r\n\r\n" * 100),
    "is empty": lambda _: once(message(b"")),
    "is of no kind": lambda uid: once(message(verdict(uid, ALLOW, kind="Pod"))),
    "is of another version": lambda uid: once(message(verdict(uid, ALLOW, apiVersion="v2"))),
    "has another uid": lambda _: once(message(verdict("other", ALLOW))),
    "has no uid": lambda _: once(message(b'{"response":{"allowed":true}}')),
    "is a list": lambda _: once(message(b"[1,2,3]")),
    "says yes in words": lambda uid: once(message(verdict(uid, {"allowed": "true"}))),
    "fails with lines": lambda _: once(message(LINES.encode(), status="500 no\x0b" + FORGED)),
    "has a kind of lines": lambda uid: once(message(verdict(uid, ALLOW, kind=LINES))),
    "denies with lines": lambda uid: once(
        message(
            verdict(
                uid,
                {
                    "allowed": False,
                    "status": {"message": LINES * 100, "reason": LINES, "code": 10**30},
                    "warnings": [LINES] * 100,
                    "auditAnnotations": {LINES: LINES},
                },
            )
        )
    ),
    "patches double": lambda uid: once(message(verdict(uid, patch(*DOUBLING)))),
    "patches copy": lambda uid: once(message(verdict(uid, patch(*COPIES)))),
    "patches containers": lambda uid: once(message(verdict(uid, patch(*CONTAINERS)))),
    "patches spread": lambda uid: once(message(verdict(uid, patch(*SPREAD)))),
    "patches shuffle": lambda uid: once(message(verdict(uid, patch(*SHUFFLE)))),
    "patches deep": lambda uid: once(
        message(verdict(uid, patch({"op": "add", "path": "/a" * 100_000, "value": 1})))
    ),
    "patches much": lambda uid: once(
        message(verdict(uid, patch({"op": "add", "path": "/data/a", "value": "x" * 2 * MIB})))
    ),
}


@dataclass
class Served:
    """`asked` and `most_at_once` are filled in when the server has ended."""

    port: int
    asked: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0


@contextmanager
def hostile(target: Attacked) -> Iterator[Served]:
    """The server, with a certificate that the target's webhooks trust."""
    pair = target.server.authority.issue(Subject("hostile", "hostile", (), ("127.0.0.1",)))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.attacks.hostile_webhook", pair.cert_file, pair.key_file],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        served = Served(int(line_of(process)))
        yield served
        reported = json.loads(process.communicate(timeout=60)[0])
        served.asked.update(reported["asked"])
        served.most_at_once = reported["most_at_once"]
    finally:
        process.kill()
        process.communicate()


class Server:
    """Reads each request to its end and answers as its path says; one request per connection."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            review = json.loads(await reader.readexactly(int(length)))
            path = head.split()[1].decode().partition("?")[0].strip("/").replace("-", " ")
            self.asked[path] += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                await self._answer(WAYS[path](review["request"]["uid"]), reader, writer)
            finally:
                self.at_once -= 1
        writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def _answer(
        self, chunks: Chunks, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until all is sent, or whoever asked is gone."""
        sending = asyncio.ensure_future(self._send(chunks, writer))
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()
        gone.cancel()
        await asyncio.gather(sending, gone, return_exceptions=True)

    async def _send(self, chunks: Chunks, writer: asyncio.StreamWriter) -> None:
        async for chunk in chunks:
            writer.write(chunk)
            await writer.drain()


async def main(cert_file: str, key_file: str) -> None:
    server = Server()
    packed()
    context = tls.server_context(cert_file, key_file, client_ca_file=None)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps({"asked": server.asked, "most_at_once": server.most_at_once}), flush=True)


if __name__ == "__main__":
    os.nice(NICENESS)
    asyncio.run(main(*sys.argv[1:]))
