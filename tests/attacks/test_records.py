"""TLS that costs much before anything is asked: records of one byte each, which are decrypted, and
handshakes.

What is sent is made beforehand, so that the attacker is ready to send it all at once.
"""

from __future__ import annotations

import resource
import selectors
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orch.component.pki import Authority, Subject
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


def nearly_open(
    port: int, context: ssl.SSLContext
) -> tuple[socket.socket, ssl.SSLObject, ssl.MemoryBIO]:
    """A connection, its TLS, and the end of the handshake, which is to be sent."""
    raw = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(received, sent, server_hostname="127.0.0.1")
    while True:
        try:
            secured.do_handshake()
            return raw, secured, sent
        except ssl.SSLWantReadError:
            raw.sendall(sent.read())
            received.write(raw.recv(65_536))


def prepared(port: int, context: ssl.SSLContext, opening: bytes) -> tuple[socket.socket, bytes]:
    """A connection that has sent an opening, and the records that are to follow."""
    raw, secured, sent = nearly_open(port, context)
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


def test_a_group_in_which_a_handshake_takes_long_is_refused(target: Attacked) -> None:
    """One of ffdhe8192 took the server 130 ms, and a client may send the same number each time."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{target.port}", "-tls1_3"]
    command += ["-groups", "ffdhe8192"]
    with target.witnessed() as seen:
        ended = [subprocess.run(command, input=b"", capture_output=True) for _ in range(5)]
    assert all(one.returncode for one in ended), ended[0].stdout
    harness.others_served(seen)
    harness.no_long_stall(seen)


def test_endless_chains_of_certificates_over_many_connections_keep_nobody_waiting(
    target: Attacked, tmp_path: Path
) -> None:
    """80 kB of them took the server 50 ms: a stall of 213 ms with 60 connections."""
    pair = Authority(tmp_path, now=datetime.now(UTC)).issue(Subject("mallory", "mallory"))
    chain, certificate = tmp_path / "chain.crt", Path(pair.cert_file).read_text()
    chain.write_text(certificate * (70_000 // len(ssl.PEM_cert_to_DER_cert(certificate))))
    context = target.context()
    context.load_cert_chain(chain, pair.key_file)
    with ExitStack() as stack:
        made = []
        for _ in range(60):
            raw, _, sent = nearly_open(target.port, context)
            stack.callback(raw.close)
            made.append((raw, sent.read()))
        assert len(made[0][1]) > 60_000
        with target.witnessed() as seen:
            send_all(made)
            time.sleep(2)
    print(seen)
    harness.others_undisturbed(seen, limit_ms=75.0)
    harness.no_long_stall(seen)
