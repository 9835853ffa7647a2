"""The keys of the live view, without a terminal."""

from __future__ import annotations

import asyncio
import os

import pytest

from orch.ctl.nodes.screen import Screen, View

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
        ("\x1b[6~\x1b[5~", 0), ("G", 24), ("Gk", 23), ("Gg", 0), ("??x", 0),
    ],
)  # fmt: skip
def test_keys_scroll_within_the_lines(
    typed: str, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen(View())
    for key in typed.replace("k", "|k").replace("g", "|g").split("|"):
        screen.press(key)
        page = drawn(screen, capsys)
    assert page[:-1] == ["HEAD", *LINES[first : first + 6]]
    assert page[-1].startswith("q quit") and len(page[-1]) <= 40


def test_keys_choose_the_order_and_end() -> None:
    screen = Screen(View())
    orders = []
    for key in "cmpnz":
        screen.press(key)
        orders.append(screen.view.sort_by)
    assert orders == ["cpu", "memory", "pressure", "name", "name"]
    assert not screen.ended
    screen.press("q")
    assert screen.ended


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("1", View(depth=0)),
        ("3", View(depth=2)),
        ("32", View(depth=1)),
        ("4", View(shows_pressure=True)),
        ("44", View()),
        ("/web\r", View(filter="web")),
        ("/q4c", View(filter="q4c")),  # what is typed commands nothing
        ("/webx\x7f\rc", View("cpu", filter="web")),
        ("/web\x1b", View()),
        ("/web\r\x1b", View()),
        ("/a\x1b[B\x01b", View(filter="ab")),
        ("/" + "x" * 999, View(filter="x" * 64)),
    ],
)
def test_keys_choose_the_view_and_the_filter(typed: str, wanted: View) -> None:
    screen = Screen(View())
    screen.press(typed)
    assert screen.view == wanted
    assert not screen.ended


def test_help_is_shown_until_the_next_key(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(View())
    screen.press("?")
    assert "nodes and pods" in "\n".join(drawn(screen, capsys))
    screen.press("x")
    assert drawn(screen, capsys)[:2] == ["HEAD", "line 0"]


def test_the_last_line_says_what_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(View())
    screen.press("/web")
    assert drawn(screen, capsys)[-1].startswith("filter: web_")
    screen.press("\r")
    assert drawn(screen, capsys)[-1].startswith("/web   q quit")


@pytest.mark.looptime
async def test_waiting_ends_with_a_key_or_the_time() -> None:
    screen, loop = Screen(View()), asyncio.get_running_loop()
    began_s = loop.time()
    assert not await screen.wait(2)
    assert loop.time() == pytest.approx(began_s + 2)
    loop.call_later(1, screen.press, "j")
    assert await screen.wait(5)
    assert loop.time() == pytest.approx(began_s + 3)
    assert not await screen.wait(0)
