"""Connections at their limit: which are cut, which are refused, what is logged."""

from __future__ import annotations

import logging
import weakref

import pytest

from orch.component.http.connection_limit import ConnectionLimit


class Client:
    """A connection that is idle unless said otherwise."""

    def __init__(self, limit: ConnectionLimit, address: str, *, idle: bool = True) -> None:
        self.is_idle = idle
        self.dropped = False
        self._limit, self._address = limit, address
        self.admitted = limit.admit(address, self)

    def drop(self) -> None:
        self.dropped = True
        self.close()

    def close(self) -> None:
        self._limit.release(self._address, self)


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
