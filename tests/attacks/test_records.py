"""TLS records of one byte each: what they cost is decrypting them, before anything is asked.

They are made beforehand, so that the attacker is ready to send them all at once.
"""

from __future__ import annotations

import resource
import selectors
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.attacks import harness
from tests.attacks.costly import REVIEWS
from tests.attacks.harness import MALLORY, Attacked, head

pytestmark = pytest.mark.alone

CONNECTIONS = 2000  # of the server, 1,000 of them from one address
RECORDS = 60_000 // 23  # of 60 kB, of which the kernel takes all at once
PATIENCE_S = 60.0
OPENINGS = {
    "a stranger's head": (b"GET / HTTP/1.1\r\nHost: x\r\nA: ", 400),
    "a user's body": (head(MALLORY, "POST", f"{REVIEWS}/selfsubjectaccessreviews", 100_000), 90),
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    flags = (f"--max-connections={CONNECTIONS}",)
    with harness.attacked(tmp_path_factory.mktemp("records"), *flags) as running:
        yield running
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def prepared(port: int, context: ssl.SSLContext, opening: bytes) -> tuple[socket.socket, bytes]:
    """A connection that has sent an opening, and the records that are to follow."""
    raw = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(received, sent, server_hostname="127.0.0.1")
    while True:
        try:
            secured.do_handshake()
            break
        except ssl.SSLWantReadError:
            raw.sendall(sent.read())
            received.write(raw.recv(65_536))
    secured.write(opening)
    raw.sendall(sent.read())
    for _ in range(RECORDS):
        secured.write(b" ")
    return raw, sent.read()


def send_all(made: Sequence[tuple[socket.socket, bytes]]) -> None:
    """As fast as the kernel takes it; a connection may be cut meanwhile."""
    with selectors.DefaultSelector() as selector:
        for raw, data in made:
            raw.setblocking(False)
            selector.register(raw, selectors.EVENT_WRITE, [memoryview(data)])
        end_s = time.monotonic() + PATIENCE_S
        while selector.get_map():
            assert time.monotonic() < end_s, f"{len(selector.get_map())} are not taken"
            for key, _ in selector.select(1):
                try:
                    taken = key.fileobj.send(key.data[0])  # type: ignore[union-attr]
                except BlockingIOError:
                    continue
                except OSError:
                    taken = len(key.data[0])
                key.data[0] = key.data[0][taken:]
                if not key.data[0]:
                    selector.unregister(key.fileobj)


@pytest.mark.parametrize("opening", OPENINGS)
def test_records_of_a_byte_over_many_connections_keep_nobody_waiting(
    target: Attacked, opening: str
) -> None:
    sent, count = OPENINGS[opening]
    context = target.context()
    with ExitStack() as stack:
        made = [prepared(target.port, context, sent) for _ in range(count)]
        for raw, _ in made:
            stack.callback(raw.close)
        with target.witnessed() as seen:
            send_all(made)
            for _ in range(3):  # what was sent is read by then, or others come in between
                assert target.ask(MALLORY, "GET", "/api").status == 200
    harness.others_served(seen)
    harness.no_long_stall(seen)
