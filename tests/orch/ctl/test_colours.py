from __future__ import annotations

import io

import pytest

from orch.ctl import colours


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "wanted"),
    [
        (Terminal(), {}, True),
        (io.StringIO(), {}, False),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
    ],
)
def test_only_a_terminal_whose_user_does_not_mind_is_coloured(
    stream: io.StringIO,
    environment: dict[str, str],
    wanted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert colours.wanted(stream) is wanted


def test_a_text_is_painted_or_left_as_it_is() -> None:
    assert colours.painted("hot", "red", on=True) == "\x1b[31mhot\x1b[0m"
    assert colours.painted("hot", "red", on=False) == "hot"
    assert colours.painted("cold", None, on=True) == "cold"
