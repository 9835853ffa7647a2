"""Clients that take nothing: when they are cut, whose go first, and what is logged."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from orch.component.http import slow_clients
from orch.component.http.slow_clients import (
    GRACE_S,
    PATIENT_BYTES_OF_USER,
    STALL_S,
    SlowClients,
)

pytestmark = pytest.mark.looptime


class Client:
    """A connection that became slow."""

    def __init__(
        self, account: SlowClients, user: str, waiting_bytes: int, *, is_patient: bool = False
    ) -> None:
        self.owner, self.waiting_bytes, self.is_patient = user, waiting_bytes, is_patient
        self.dropped = False
        self.account = account
        account.stalled(self)

    def drop(self) -> None:
        self.dropped = True


def account(**bounds: Any) -> SlowClients:
    return SlowClients("x", **bounds)


async def test_a_client_that_takes_nothing_is_cut_and_one_that_goes_on_is_not() -> None:
    slow = account()
    stuck, moving = Client(slow, "a", 10), Client(slow, "a", 10)
    for _ in range(4):
        assert not stuck.dropped
        await asyncio.sleep(STALL_S / 4 + GRACE_S / 2)
        slow.resumed(moving)
        slow.stalled(moving)
    assert (stuck.dropped, moving.dropped) == (True, False)
    assert (slow.waiting_bytes, slow.cut) == (10, 1)
    slow.resumed(moving)
    await asyncio.sleep(2 * GRACE_S)


async def test_a_reader_who_pauses_is_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kubectl logs -f | less`."""
    monkeypatch.setattr(slow_clients, "PATIENCE_S", 500.0)
    slow = account()
    paused = Client(slow, "a", 300_000, is_patient=True)
    await asyncio.sleep(500.0 - GRACE_S)
    assert not paused.dropped
    await asyncio.sleep(3 * GRACE_S)
    assert paused.dropped


@pytest.mark.parametrize(
    ("sizes", "bounds", "left"),
    [
        ([PATIENT_BYTES_OF_USER // 4] * 6, {}, 4),
        ([300_000] * 6, {"max_bytes": 4_000_000}, 3),
        ([300_000] * 6, {"max_bytes_of_user": 1_000_000}, 3),
    ],
)
async def test_those_who_pause_are_kept_only_where_little_waits(
    sizes: list[int], bounds: dict[str, int], left: int
) -> None:
    slow = account(**bounds)
    paused = [Client(slow, "a", size, is_patient=True) for size in sizes]
    await asyncio.sleep(STALL_S + 2 * GRACE_S)
    assert [client.dropped for client in paused] == [True] * (6 - left) + [False] * left
    await asyncio.sleep(10 * STALL_S)
    assert sum(not client.dropped for client in paused) == left
    slow.cut_all()
    assert all(client.dropped for client in paused)


async def test_beyond_the_bound_of_a_user_the_slowest_go_after_a_moment() -> None:
    slow = account(max_bytes_of_user=25)
    other, *many = Client(slow, "b", 20), *(Client(slow, "a", 10) for _ in range(4))
    assert not any(client.dropped for client in many)
    await asyncio.sleep(3 * GRACE_S)
    assert [client.dropped for client in (other, *many)] == [False, True, True, False, False]
    assert slow.waiting_bytes == 40


async def test_who_is_slow_for_less_than_a_moment_is_not_cut() -> None:
    slow = account(max_bytes_of_user=25)
    await asyncio.sleep(1)
    first = Client(slow, "a", 20)
    await asyncio.sleep(GRACE_S / 2)
    second = Client(slow, "a", 20)
    await asyncio.sleep(GRACE_S * 0.9)
    assert (first.dropped, second.dropped) == (True, False)


async def test_beyond_the_bound_of_all_the_user_with_the_most_loses_at_once() -> None:
    slow = account(max_bytes=100)
    modest = Client(slow, "b", 40)
    greedy = [Client(slow, "a", 20) for _ in range(5)]
    assert [client.dropped for client in (modest, *greedy)] == [False] + [True] * 2 + [False] * 3
    assert slow.waiting_bytes == 100


async def test_whoever_is_gone_no_longer_counts() -> None:
    slow = account()
    client = Client(slow, "a", 10)
    slow.resumed(client)
    slow.resumed(client)
    assert (slow.waiting_bytes, slow.cut) == (0, 0)


async def test_when_memory_is_short_all_but_the_latest_are_cut() -> None:
    slow = account()
    early = Client(slow, "a", 10)
    await asyncio.sleep(2 * GRACE_S)
    late = Client(slow, "b", 10)
    slow.cut_all()
    assert (early.dropped, late.dropped) == (True, False)


async def test_cuts_are_logged_once_with_whom_and_so_is_their_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = account(max_bytes=15_000)
    with caplog.at_level(logging.INFO):
        last = [Client(slow, "mallory", 10_000) for _ in range(4)][-1]
        slow.resumed(last)
        await asyncio.sleep(2 * GRACE_S)
    cut, over = caplog.messages
    assert "do not take their answers" in cut and "'mallory'" in cut
    assert "3 were cut" in over
