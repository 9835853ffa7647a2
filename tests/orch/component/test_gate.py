import logging

import pytest

from orch.component.gate import Admission


def test_connections_are_admitted_up_to_the_limit() -> None:
    admission = Admission("x", limit=2, limit_per_address=2)
    assert [admission.admit(a) for a in ("a", "b", "c")] == [True, True, False]
    admission.leave("a")
    assert admission.admit("c")
    assert (admission.open, admission.refused) == (2, 1)


def test_one_address_gets_its_share_only() -> None:
    admission = Admission("x", limit=4, limit_per_address=2)
    assert [admission.admit("a") for _ in range(3)] == [True, True, False]
    assert admission.admit("b")
    admission.leave("a")
    assert admission.admit("a")


def test_refusing_is_told_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    admission = Admission("the agent", limit=10, limit_per_address=10)
    for _ in range(15):
        admission.admit("10.0.0.1")
    assert caplog.messages == [
        "the agent refuses connections: 10 are open, 10 of them from 10.0.0.1"
    ]
    caplog.clear()
    for _ in range(3):
        admission.leave("10.0.0.1")
    assert caplog.messages == ["the agent takes connections again: 8 are open"]


def test_nothing_is_kept_of_an_address_that_left() -> None:
    admission = Admission("x", limit=4, limit_per_address=2)
    admission.admit("a")
    admission.leave("a")
    assert admission._per_address == {}
