"""Every daemon says in one line what it does not understand of its command line."""

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from nodeagent import main as agent
from nodeagent.hollow import main as hollow
from orch.component.flags import program_flags
from orch.component.flags.program_flags import USAGE
from orch.lifecycle import main as controller
from orch.server import main as server
from orch.up import main as up

PROGRAMS: dict[str, Callable[[list[str]], Any]] = {
    "nodeagent": agent.main,
    "nodeagent hollow": hollow.main,
    "orch-apiserver": server.main,
    "orch-controller-manager": controller.main,
    "orch-up": up.main,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_flag_is_answered_in_one_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        PROGRAMS[name](["--kubeconfig=x", "--run-dir=x", "--runtime-tool=x", "--bogus=1"])
    assert ended.value.code == USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{name}: error: ") and line.endswith(f"; see '{name} --help'")


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (program_flags.boolean, "True", True),
        (program_flags.boolean, "1", True),
        (program_flags.boolean, "false", False),
        (program_flags.boolean, "0", False),
        (program_flags.duration, "5m30s", 330.0),
        (program_flags.duration, "0", 0.0),
    ],
)
def test_values_of_flags_are_read(read: Callable[[str], object], text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [(program_flags.boolean, "yes"), (program_flags.boolean, ""), (program_flags.duration, "soon")],
)
def test_another_value_is_named(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=repr(text)):
        read(text)
