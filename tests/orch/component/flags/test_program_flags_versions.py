"""--version and --emulated-version."""

from __future__ import annotations

import argparse

import pytest

from orch.component.flags import program_flags
from orch.component.flags.stability import CURRENT
from orch.wire.names import VERSION


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="x")
    program_flags.add_version_flags(parser, "x")
    return parser.parse_args(words)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse("--version")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"x {VERSION}\n"


def test_this_release_is_emulated_by_default() -> None:
    assert parse().emulated_version == CURRENT
    assert str(parse("--emulated-version=1.34").emulated_version) == "1.34"
    assert str(parse("--emulated-version=1.32").emulated_version) == "1.32"


@pytest.mark.parametrize("text", ["1.31", "1.36", "2.35", "x", ""])
def test_another_release_cannot_be_emulated(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(f"--emulated-version={text}")
    assert repr(text) in capsys.readouterr().err
