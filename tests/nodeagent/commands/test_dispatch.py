"""Which command lines are commands, and how a command ends."""

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from nodeagent.commands import dispatch
from nodeagent.config.layers import ConfigError


@pytest.mark.parametrize("argv", [[], ["--config", "x"], ["-h"], ["--port=1", "config"]])
def test_a_command_line_that_begins_with_a_flag_is_the_daemons(argv: list[str]) -> None:
    assert dispatch.dispatch(argv) is None


def test_an_unknown_word_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        dispatch.dispatch(["confg", "view"])
    assert caught.value.code == 2
    assert "unknown command 'confg'; the commands are checkpoint, config" in capsys.readouterr().err


def test_wrong_usage_of_a_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        dispatch.dispatch(["config", "view", "--prot", "1"])
    assert caught.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("word", dispatch.COMMANDS)
def test_every_command_explains_itself(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        dispatch.dispatch([word, "--help"])
    assert caught.value.code == 0
    assert f"nodeagent {word}" in capsys.readouterr().out


def test_every_line_of_an_error_names_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_args: argparse.Namespace) -> int:
        raise ConfigError("a: wrong\nb: wrong")

    module: Any = SimpleNamespace(add_arguments=lambda parser: None, run=fail)
    monkeypatch.setattr(dispatch.importlib, "import_module", lambda name: module)
    assert dispatch.dispatch(["config"]) == 1
    assert capsys.readouterr().err == (
        "nodeagent config: error: a: wrong\nnodeagent config: error: b: wrong\n"
    )
