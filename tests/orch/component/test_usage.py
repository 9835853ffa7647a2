"""Every daemon says in one line what it does not understand of its command line."""

from collections.abc import Callable
from typing import Any

import pytest

from nodeagent import main as agent
from nodeagent.hollow import main as hollow
from orch.component.usage import USAGE
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
