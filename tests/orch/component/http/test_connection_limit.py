"""Who gets in where there is no room: whose place is taken, who is refused, what the log says."""

from __future__ import annotations

import logging

import pytest

from orch.component.http.connection_limit import Admission


class Guest:
    """A connection that is idle unless told otherwise."""

    def __init__(self, admission: Admission, address: str, *, idle: bool = True) -> None:
        self.is_idle = idle
        self.dropped = False
        self._admission, self._address = admission, address
        self.admitted = admission.admit(address, self)

    def drop(self) -> None:
        self.dropped = True
        self.leave()

    def leave(self) -> None:
        self._admission.leave(self._address, self)


def guests(admission: Admission, addresses: str, *, idle: bool = True) -> list[Guest]:
    return [Guest(admission, address, idle=idle) for address in addresses]


def test_there_is_room_up_to_the_limits() -> None:
    admission = Admission("x", limit=4, limit_per_address=2)
    assert all(guest.admitted for guest in guests(admission, "aabc"))
    assert (admission.open, admission.shed, admission.refused) == (4, 0, 0)


def test_an_address_with_its_share_gives_up_its_own_oldest_idle_connection() -> None:
    admission = Admission("x", limit=10, limit_per_address=2)
    first, second, other = guests(admission, "aab")
    assert Guest(admission, "a").admitted
    assert (first.dropped, second.dropped, other.dropped) == (True, False, False)
    assert (admission.open, admission.shed) == (3, 1)


def test_when_all_is_full_the_address_with_most_gives_one_up() -> None:
    admission = Admission("x", limit=4, limit_per_address=3)
    lone, *many = guests(admission, "baaa")
    assert Guest(admission, "c").admitted
    assert [guest.dropped for guest in (lone, *many)] == [False, True, False, False]


def test_connections_at_work_keep_their_place_and_newcomers_are_refused() -> None:
    admission = Admission("x", limit=2, limit_per_address=2)
    at_work = guests(admission, "ab", idle=False)
    assert not Guest(admission, "c").admitted
    assert not any(guest.dropped for guest in at_work)
    assert (admission.open, admission.refused) == (2, 1)


def test_one_at_work_is_passed_over() -> None:
    admission = Admission("x", limit=9, limit_per_address=2)
    at_work = Guest(admission, "a", idle=False)
    idle = Guest(admission, "a")
    assert Guest(admission, "a").admitted
    assert (at_work.dropped, idle.dropped) == (False, True)


def test_who_leaves_makes_room() -> None:
    admission = Admission("x", limit=2, limit_per_address=2)
    first, _ = guests(admission, "aa", idle=False)
    first.leave()
    assert Guest(admission, "a").admitted


def test_being_full_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    admission = Admission("the agent", limit=20, limit_per_address=10)
    came = guests(admission, "1" * 15)
    assert caplog.messages == [
        "the agent cuts connections without a request to make room: 10 are open, 10 of them from 1"
    ]
    caplog.clear()
    for guest in came[-3:]:
        guest.leave()
    assert [text.partition(" (after ")[0] for text in caplog.messages] == [
        "the agent has room again: 8 connections are open"
    ]


def test_refusing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    admission = Admission("the agent", limit=2, limit_per_address=1)
    guests(admission, "aaa", idle=False)
    assert caplog.messages == ["the agent refuses connections: 1 are open, 1 of them from a"]


def test_nothing_is_kept_of_an_address_that_left() -> None:
    admission = Admission("x", limit=4, limit_per_address=2)
    Guest(admission, "a").leave()
    assert admission._guests == {}
