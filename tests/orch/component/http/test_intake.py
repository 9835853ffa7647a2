"""Whose bytes are parsed when: at once, in turns, or in the next window."""

from __future__ import annotations

import asyncio

import pytest

from orch.component.http.intake import (
    ALL_S,
    LITTLE_S,
    LOOK_S,
    MOST_OWED_S,
    OWN_S,
    WINDOW_S,
    Intake,
)

SLICE_S = OWN_S / 3.9  # four exceed a share, eight that and what was left of the one before


class Clients:
    """Receivers on a loop whose clock only parsing moves, or the test; `parsed` are their slices
    in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fills_pauses: bool = False) -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self.now_s)
        self.now_s = 1000.0
        self.intake = Intake(loop, fills_pauses=fills_pauses)
        self.parsed: list[str] = []
        self.held: list[str] = []
        self.released: list[str] = []

    def send(self, name: str, slices: int, payer: object = "") -> Client:
        client = Client(self, name, slices, payer or name)
        self.intake.take(client)
        return client

    async def turns(self, count: int) -> list[str]:
        """What is parsed in so many turns of the loop."""
        before = len(self.parsed)
        for _ in range(count):
            await asyncio.sleep(0)
        return self.parsed[before:]


class Client:
    def __init__(self, clients: Clients, name: str, slices: int, payer: object) -> None:
        self._clients = clients
        self._name = name
        self._slices = slices
        self.payer = payer
        self.slice_s = SLICE_S

    def parse_slice(self) -> bool:
        self._clients.now_s += self.slice_s
        self._clients.parsed.append(self._name)
        self._slices -= 1
        return self._slices > 0

    def hold(self) -> None:
        self._clients.held.append(self._name)

    def release(self) -> None:
        self._clients.released.append(self._name)


@pytest.fixture
async def clients(monkeypatch: pytest.MonkeyPatch) -> Clients:
    return Clients(monkeypatch)


async def test_what_is_sent_is_parsed_at_once_within_the_share_of_its_owner(
    clients: Clients,
) -> None:
    clients.send("a", 3)
    assert (clients.parsed, clients.held, clients.released) == (["a"] * 3, [], ["a"])


async def test_what_exceeds_the_share_of_its_owner_waits_for_the_next_window(
    clients: Clients,
) -> None:
    clients.send("a", 14)
    assert (clients.parsed, clients.held, clients.released) == (["a"] * 8, ["a"], [])
    assert await clients.turns(5) == []
    clients.now_s += WINDOW_S
    assert await clients.turns(5) == ["a"] * 4
    clients.now_s += WINDOW_S
    assert await clients.turns(5) == ["a"] * 2
    assert clients.released == ["a"]


@pytest.mark.parametrize(
    ("before", "windows", "at_once"),
    [(8, 1, 4), (6, 1, 6), (4, 1, 8), (1, 1, 8), (8, 2, 8)],
)
async def test_what_an_owner_left_of_the_window_before_it_has_in_this_one(
    clients: Clients, before: int, windows: int, at_once: int
) -> None:
    clients.send("a", before)
    clients.now_s += windows * WINDOW_S
    clients.send("b", 20, payer="a")
    assert clients.parsed[before:] == ["b"] * at_once


def send_slow(clients: Clients, names: str, slice_s: float) -> None:
    for name in names:
        clients.now_s += WINDOW_S
        slow = Client(clients, name, 1, "network")
        slow.slice_s = slice_s
        clients.intake.take(slow)


async def test_a_slice_that_takes_long_is_paid_in_the_windows_after_it(clients: Clients) -> None:
    """As a handshake may: those of many connections were computed in one turn of the loop."""
    send_slow(clients, "abc", MOST_OWED_S)
    assert clients.parsed == ["a"]
    windows = 0
    while len(clients.parsed) < 2:
        clients.now_s += WINDOW_S
        await clients.turns(2)
        windows += 1
    assert windows >= MOST_OWED_S / OWN_S - 7  # four went by, and two may be owed


async def test_a_machine_that_stood_still_during_a_slice_is_not_paid_for(clients: Clients) -> None:
    send_slow(clients, "abc", 10.0)
    assert clients.parsed == ["a", "b", "c"]


async def test_all_connections_of_an_owner_share_its_time(clients: Clients) -> None:
    for name in "abcdef":
        clients.send(name, 2, "mallory")
    assert clients.parsed == list("aabbccdd")
    clients.send("x", 1)
    assert clients.parsed == list("aabbccddx")
    clients.now_s += WINDOW_S
    assert await clients.turns(20) == list("efef")


async def test_owners_that_wait_come_in_rotation_a_slice_in_a_turn(clients: Clients) -> None:
    for name in "abc":
        clients.send(name, 20)
    clients.now_s += WINDOW_S
    taken = [await clients.turns(1) for _ in range(9)]
    assert max(map(len, taken)) == 1
    assert "".join(name for one in taken for name in one).startswith("abcabc")


async def test_an_owner_alone_is_held_to_its_share_and_all_together_to_theirs(
    clients: Clients,
) -> None:
    for name in "abcd":
        clients.send(name, 100)
    for _ in range(3):
        began_s = clients.now_s = clients.now_s + WINDOW_S
        await clients.turns(40)
        assert ALL_S <= clients.now_s - began_s < ALL_S + 2 * LITTLE_S + 2 * SLICE_S


async def test_who_sends_little_need_not_wait_for_who_sends_much(clients: Clients) -> None:
    clients.send("a", 100)
    clients.send("b", 100)
    clients.send("c", 2)
    assert clients.parsed == ["a"] * 8 + ["b"] + ["c"]
    clients.now_s += WINDOW_S
    assert "c" in await clients.turns(3)


async def test_a_connection_waits_with_those_of_whoever_it_belongs_to_by_then(
    clients: Clients,
) -> None:
    stranger = clients.send("a", 14, "network")
    clients.send("b", 10, "network")
    clients.send("c", 10, "network")
    stranger.payer = "mallory"
    clients.now_s += WINDOW_S
    assert "".join(await clients.turns(6)) == "abacab"


async def test_pauses_of_the_loop_are_filled_beyond_all_shares_and_cost_nobody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = Clients(monkeypatch, fills_pauses=True)
    clients.send("a", 8)
    asyncio.get_running_loop().call_soon(clients.parsed.clear)
    for payer in "ba":
        clients.send(payer, 14)
    assert clients.parsed == ["a"] * 8 + ["b"] * 8, "somebody else has something to do"
    assert await clients.turns(20) == []
    clients.now_s += LOOK_S
    await asyncio.sleep(SLICE_S / 2)
    assert clients.parsed == ["b"]


async def test_of_pauses_nothing_is_charged_to_all_though_several_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients = Clients(monkeypatch, fills_pauses=True)
    asyncio.get_running_loop().call_soon(clients.parsed.clear)
    for payer in "ab":
        clients.send(payer, 30)
    clients.now_s += WINDOW_S
    await asyncio.sleep(10 * SLICE_S)
    assert set(clients.parsed[-6:]) == {"a", "b"}
    asyncio.get_running_loop().call_soon(clients.parsed.clear)
    clients.send("c", 4)
    assert clients.parsed.count("c") == 4, "others have their shares"
