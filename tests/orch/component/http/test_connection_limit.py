"""Connections at their limit: which are cut, which are refused, what is logged."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import logging
import ssl
import weakref
from typing import Any

import pytest
from aiohttp import web

from orch.component.http import httpd
from orch.component.http.connection import Connection, Rank
from orch.component.http.connection_limit import KEPT_PER_OWNER, ConnectionLimit, network_of
from orch.component.http.httpd import HttpServer
from tests.conftest import Pki
from tests.garbage import is_left_by


class Client:
    """A connection that is idle unless said otherwise."""

    def __init__(self, limit: ConnectionLimit, address: str, *, idle: bool = True) -> None:
        self.is_idle = idle
        self.dropped = False
        self.owner: object = None
        self.rank = Rank.STRANGER
        self._limit, self._address = limit, address
        self.admitted = limit.admit(address, self)

    def drop(self) -> None:
        self.dropped = True
        self.close()

    def close(self) -> None:
        self._limit.release(self._address, self)

    def claim(self, owner: str, rank: Rank = Rank.USER) -> bool:
        return self._limit.claim(self._address, self, owner, rank)


def clients(limit: ConnectionLimit, addresses: str, *, idle: bool = True) -> list[Client]:
    return [Client(limit, address, idle=idle) for address in addresses]


def test_there_is_room_up_to_the_limits() -> None:
    limit = ConnectionLimit("x", limit=4, limit_per_address=2)
    assert all(client.admitted for client in clients(limit, "aabc"))
    assert (limit.open, limit.shed, limit.refused) == (4, 0, 0)


def test_an_address_at_its_limit_loses_its_own_oldest_idle_connection() -> None:
    limit = ConnectionLimit("x", limit=10, limit_per_address=2)
    first, second, other = clients(limit, "aab")
    assert Client(limit, "a").admitted
    assert (first.dropped, second.dropped, other.dropped) == (True, False, False)
    assert (limit.open, limit.shed) == (3, 1)


def test_at_the_limit_for_all_the_address_with_most_connections_loses_its_oldest() -> None:
    limit = ConnectionLimit("x", limit=4, limit_per_address=3)
    lone, *many = clients(limit, "baaa")
    assert Client(limit, "c").admitted
    assert [client.dropped for client in (lone, *many)] == [False, True, False, False]


def test_busy_connections_stay_and_new_ones_are_refused() -> None:
    limit = ConnectionLimit("x", limit=2, limit_per_address=2)
    busy = clients(limit, "ab", idle=False)
    assert not Client(limit, "c").admitted
    assert not any(client.dropped for client in busy)
    assert (limit.open, limit.refused) == (2, 1)


def test_a_busy_connection_is_passed_over() -> None:
    limit = ConnectionLimit("x", limit=9, limit_per_address=2)
    busy = Client(limit, "a", idle=False)
    idle = Client(limit, "a")
    assert Client(limit, "a").admitted
    assert (busy.dropped, idle.dropped) == (False, True)


def test_a_closed_connection_makes_room() -> None:
    limit = ConnectionLimit("x", limit=2, limit_per_address=2)
    first, _ = clients(limit, "aa", idle=False)
    first.close()
    assert Client(limit, "a").admitted


def test_the_limit_being_reached_is_logged_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    limit = ConnectionLimit("the agent", limit=20, limit_per_address=10)
    opened = clients(limit, "1" * 15)
    assert caplog.messages == [
        "the agent cuts connections without a request to make room: 10 are open, 10 of them from 1"
    ]
    caplog.clear()
    for client in opened[-3:]:
        client.close()
    assert [text.partition(" (after ")[0] for text in caplog.messages] == [
        "the agent has room again: 8 connections are open"
    ]


def test_a_refusal_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    limit = ConnectionLimit("the agent", limit=2, limit_per_address=1)
    clients(limit, "aaa", idle=False)
    assert caplog.messages == ["the agent refuses connections: 1 are open, 1 of them from a"]


def test_a_closed_connection_is_not_kept_in_memory() -> None:
    limit = ConnectionLimit("x", limit=4, limit_per_address=2)
    client = Client(limit, "a")
    closed = weakref.ref(client)
    client.close()
    del client
    assert closed() is None


def test_an_owner_at_its_limit_loses_its_own_oldest_idle_connection() -> None:
    limit = ConnectionLimit("x", limit=16, limit_per_address=16)
    first, second, third, other = clients(limit, "aabc")
    assert all(client.claim("ann") for client in (first, second))
    assert other.claim("bob")
    assert third.claim("ann")
    assert [client.dropped for client in (first, second, third, other)] == [True] + [False] * 3


def test_an_owner_whose_connections_are_all_busy_gets_no_more() -> None:
    limit = ConnectionLimit("x", limit=16, limit_per_address=16)
    *busy, last = clients(limit, "abc", idle=False)
    assert all(client.claim("ann") for client in busy)
    assert not last.claim("ann")
    assert last.claim("bob")
    assert last.claim("bob")
    busy[0].close()
    assert last.claim("ann")


def test_the_privileged_have_as_many_as_they_open() -> None:
    limit = ConnectionLimit("x", limit=16, limit_per_address=16)
    opened = clients(limit, "a" * 16)
    assert all(client.claim("root", Rank.PRIVILEGED) for client in opened)
    assert not any(client.dropped for client in opened)


def test_a_connection_has_one_owner_at_a_time() -> None:
    limit = ConnectionLimit("x", limit=8, limit_per_address=8)
    client, other = clients(limit, "aa", idle=False)
    assert client.claim("ann")
    assert client.claim("bob")
    assert other.claim("ann"), "the first is no longer hers"


def test_strangers_are_cut_before_users_and_these_before_those_that_are_kept() -> None:
    limit = ConnectionLimit("x", limit=32, limit_per_address=4)
    kept, user, busy, stranger = clients(limit, "aaaa")
    assert kept.claim("node", Rank.KEPT)
    assert user.claim("ann")
    busy.is_idle = False
    cut = []
    for _ in range(3):
        assert Client(limit, "a", idle=False).admitted
        cut.append([client.dropped for client in (kept, user, busy, stranger)])
    assert cut == [
        [False, False, False, True], [False, True, False, True], [True, True, False, True],
    ]  # fmt: skip


def test_at_the_limit_for_all_the_address_with_most_strangers_loses_one() -> None:
    limit = ConnectionLimit("x", limit=16, limit_per_address=16)
    users = clients(limit, "a" * 13)
    assert all(client.claim(f"user-{number}") for number, client in enumerate(users))
    strangers = clients(limit, "bbc")
    assert Client(limit, "d").admitted
    assert [client.dropped for client in strangers] == [True, False, False]


def test_an_owner_has_few_that_are_kept() -> None:
    limit = ConnectionLimit("x", limit=1000, limit_per_address=KEPT_PER_OWNER + 1)
    opened = clients(limit, "a" * (KEPT_PER_OWNER + 1))
    assert all(client.claim("node", Rank.KEPT) for client in opened)
    assert Client(limit, "a").admitted
    assert [client.dropped for client in opened] == [False] * KEPT_PER_OWNER + [True]


def test_idle_connections_are_found_behind_any_number_of_busy_ones() -> None:
    limit = ConnectionLimit("x", limit=1000, limit_per_address=300)
    clients(limit, "a" * 200, idle=False)
    idle = clients(limit, "a" * 100)
    tried = [Client(limit, "a") for _ in range(8)]
    assert [client.admitted for client in tried][4:] == [True] * 4
    assert sum(client.dropped for client in idle) >= 4


def test_a_closed_connection_cannot_be_claimed_for_ever() -> None:
    limit = ConnectionLimit("x", limit=8, limit_per_address=8)
    client = Client(limit, "a")
    client.close()
    assert client.claim("ann")
    assert client.owner is None


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::1", "::"),
    ],
)
def test_a_host_does_not_choose_its_network(address: str, network: str) -> None:
    assert network_of(address) == network


def test_made_up_certificates_do_not_hide_who_else_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limit = ConnectionLimit("test", limit=4, limit_per_address=4)
    for number in range(1000):
        limit.log_refusal("192.0.2.1", f"CN=x{number}: self-signed certificate")
    limit.log_refusal("192.0.2.2", "CN=node: certificate has expired")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) < 30 and "CN=node" in said[-1]


def _read_even_if_paused(self: Any, descriptor: int, callback: Any, *args: Any) -> None:
    """As in Python 3.11.2."""
    if not self._closing:
        self._loop._add_reader(descriptor, callback, *args)


@pytest.mark.parametrize("old", [False, True])
async def test_the_hello_of_a_client_that_waits_for_its_handshake_is_not_lost(
    pki: Pki, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if old:
        transport: Any = asyncio.selector_events._SelectorTransport  # type: ignore[attr-defined]
        monkeypatch.setattr(transport, "_add_reader", _read_even_if_paused)
    pair = pki.server()
    context = httpd.server_context(pair.cert_file, pair.key_file, client_ca_file=None)
    server = HttpServer(
        web.Application(), host="127.0.0.1", port=0, ssl_context=context, name="test server"
    )

    async def take_turns(_network: str) -> None:
        for _ in range(100):  # while which the hello arrives
            await asyncio.sleep(0)

    monkeypatch.setattr(server.connection_limit, "handshake", take_turns)
    try:
        async with asyncio.timeout(20):
            _, writer = await asyncio.open_connection(
                "127.0.0.1",
                await server.start(),
                ssl=ssl.create_default_context(cafile=pki.ca_file),
                server_hostname="localhost",
            )
            writer.close()
    finally:
        await server.stop(0.1)


async def test_a_handshake_that_fails_leaves_no_garbage(pki: Pki) -> None:
    pair = pki.server()
    context = httpd.server_context(pair.cert_file, pair.key_file, client_ca_file=None)
    server = HttpServer(
        web.Application(), host="127.0.0.1", port=0, ssl_context=context, name="test server"
    )
    port = await server.start()

    async def leave() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.1)  # while which the handshake begins
        writer.close()
        raise ConnectionError

    try:
        assert not await is_left_by(leave, Connection)
    finally:
        await server.stop(0.1)
