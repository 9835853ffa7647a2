"""Seats, bodies, connections and authentication: what one caller has of them, others still have.

The attackers are a user without any rights, a tenant with many service accounts, and strangers.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from orch.server.authn import credential_files
from tests.attacks import harness
from tests.attacks.harness import MALLORY, TENANT, Attacked, head

pytestmark = pytest.mark.seconds(45)

REVIEWS = "/apis/authorization.orch.io/v1/selfsubjectaccessreviews"
PODS = "/api/v1/pods"
REVIEW = b'{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}'
ACCOUNTS = tuple(f"system:serviceaccount:{TENANT}:a{number}" for number in range(1000))
SECONDS = 3.0
MIB = 1024 * 1024
POLICY = "apiVersion: audit.orch.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"
_ALLOWED_IDLE = 512  # of the server's connections, from one address


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    directory = tmp_path_factory.mktemp("attacked")
    (directory / "policy.yaml").write_text(POLICY)
    hashed = credential_files.hash_password("right")
    (directory / "basic.csv").write_text("".join(f"{hashed},{name},1\n" for name in ("ann", "bob")))
    flags = (
        f"--basic-auth-file={directory / 'basic.csv'}",
        f"--audit-policy-file={directory / 'policy.yaml'}",
        f"--audit-log-path={directory / 'audit.log'}",
    )
    with harness.attacked(directory, *flags, users=ACCOUNTS) as running:
        yield running
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def ask(user: str, method: str, path: str, body: bytes = b"") -> bytes:
    return head(user, method, path, len(body)) + body


class Client:
    """One connection of an attacker, opened again whenever it is cut."""

    def __init__(self, target: Attacked, context: ssl.SSLContext) -> None:
        self._target = target
        self._context = context
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> int:
        """The status; 0 when the connection was cut."""
        try:
            reader, writer = await self._open()
            writer.write(request)
            answered = await reader.readuntil(b"\r\n\r\n")
            length = answered.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length))
            return int(answered.split()[1])
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._ends is None:
            self._ends = await asyncio.open_connection(
                "127.0.0.1", self._target.port, ssl=self._context
            )
        return self._ends

    def close(self) -> None:
        if self._ends is not None:
            self._ends[1].transport.abort()
            self._ends = None


async def flood(
    target: Attacked, requests: Sequence[bytes], clients: int, seconds: float = SECONDS
) -> Counter[int]:
    """As many requests as get an answer, over many connections; counted by status."""
    context, seen = target.context(), Counter[int]()
    end_s = time.monotonic() + seconds

    async def repeat(number: int) -> None:
        client = Client(target, context)
        while time.monotonic() < end_s:
            seen[await client.ask(requests[number % len(requests)])] += 1
        client.close()

    await asyncio.gather(*(repeat(number) for number in range(clients)))
    return seen


async def hold(
    target: Attacked, request: bytes, clients: int, seconds: float = SECONDS
) -> Counter[int]:
    """Send half a request over each of many connections; the answers that came nevertheless."""
    context, gate, seen = target.context(), asyncio.Semaphore(50), Counter[int]()

    async def half(client: Client) -> None:
        async with gate:
            _, writer = await client._open()
            writer.write(request)
        seen[await client.ask(b"")] += 1

    opened = [Client(target, context) for _ in range(clients)]
    held = [asyncio.ensure_future(half(client)) for client in opened]
    await asyncio.sleep(seconds)
    for task in held:
        task.cancel()
    await asyncio.gather(*held, return_exceptions=True)
    for client in opened:
        client.close()
    return seen


def test_half_sent_bodies_take_no_seat_from_anybody(target: Attacked) -> None:
    with target.witnessed() as seen:
        answers = asyncio.run(hold(target, head(MALLORY, "POST", REVIEWS, 100), 250))
    harness.others_undisturbed(target, seen)
    harness.no_long_stall(seen)
    assert answers == {429: 150}, "only so many of one caller are waited for"


def test_half_sent_large_bodies_take_little_memory(target: Attacked) -> None:
    request = head(MALLORY, "POST", REVIEWS, 3 * MIB) + b" " * (2 * MIB)
    before = target.resident_bytes()
    with target.witnessed() as seen:
        answers = asyncio.run(hold(target, request, 100))
        grown = (target.resident_bytes() - before) / MIB
    harness.others_undisturbed(target, seen)
    assert answers[429] >= 90, answers
    assert grown < 100, f"{grown:.0f} MiB more: {seen}"
