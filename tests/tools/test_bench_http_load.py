"""The load's client reads answers however they are cut."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tools.bench.http_load import Connection, Figures


def answer(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-LENGTH: %d\r\n\r\n%s" % (status, len(body), body)


def client(figures: Figures) -> Connection:
    connection = Connection(lambda answered: b"next", figures)
    connection.connection_made(asyncio.Transport())
    return connection


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.integers(1, 90))
def test_answers_may_come_in_any_pieces(bodies: list[bytes], piece: int) -> None:
    figures = Figures()
    connection = client(figures)
    for body in bodies:
        whole = answer(200, body)
        for start in range(0, len(whole), piece):
            connection.data_received(whole[start : start + piece])
        assert connection.body == body
    assert len(figures.seconds) == len(bodies)
    assert figures.refused == 0


def test_a_refusal_is_counted_and_its_body_is_no_answer() -> None:
    figures = Figures()
    connection = client(figures)
    connection.data_received(answer(409, b"conflict"))
    assert (figures.refused, connection.body) == (1, b"")
