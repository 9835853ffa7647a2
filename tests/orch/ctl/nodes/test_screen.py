"""What keys do to the live view, without a terminal."""

from __future__ import annotations

import asyncio
import os

import pytest

from orch.ctl.nodes.screen import Screen

HEAD, LINES = ["HEAD"], [f"line {number}" for number in range(30)]


def drawn(screen: Screen, capsys: pytest.CaptureFixture[str]) -> list[str]:
    screen.draw(HEAD, LINES)
    return capsys.readouterr().out.rpartition("\x1b[J")[2].split("\n")


@pytest.fixture(autouse=True)
def _eight_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "8")
    monkeypatch.setenv("COLUMNS", "40")
    assert os.environ["LINES"]


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("", 0), ("j", 1), ("jjk", 1), ("k", 0), ("\x1b[B\x1b[B\x1b[A", 1), (" ", 10),
        ("\x1b[6~\x1b[5~", 0), ("G", 24), ("Gk", 23), ("Gg", 0), ("?x\x1b", 0),
    ],
)  # fmt: skip
def test_keys_scroll_within_the_lines(
    typed: str, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen("name")
    for key in typed.replace("k", "|k").replace("g", "|g").split("|"):
        screen.press(key)
        page = drawn(screen, capsys)
    assert page[:-1] == ["HEAD", *LINES[first : first + 6]]
    assert page[-1].startswith("q quit") and len(page[-1]) <= 40


def test_keys_choose_the_order_and_end() -> None:
    screen = Screen("name")
    orders = []
    for key in "cmpnz":
        screen.press(key)
        orders.append(screen.sort_by)
    assert orders == ["cpu", "memory", "pressure", "name", "name"]
    assert not screen.ended
    screen.press("q")
    assert screen.ended


@pytest.mark.looptime
async def test_waiting_ends_with_a_key_or_the_time() -> None:
    screen, loop = Screen("name"), asyncio.get_running_loop()
    began_s = loop.time()
    assert not await screen.wait(2)
    assert loop.time() == pytest.approx(began_s + 2)
    loop.call_later(1, screen.press, "j")
    assert await screen.wait(5)
    assert loop.time() == pytest.approx(began_s + 3)
    assert not await screen.wait(0)
