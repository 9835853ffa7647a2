"""The shells themselves complete: whatever is installed of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orch.ctl import completion
from tests.orch.ctl.conftest import run_command

CHECKS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


@pytest.mark.parametrize("shell", completion.SCRIPTS)
def test_the_script_of_a_shell_is_one_it_can_read(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    result = run_command("completion", shell)
    assert result.code == 0
    assert "__complete" in result.out
    (tmp_path / "script").write_text(result.out)
    subprocess.run([*CHECKS[shell], str(tmp_path / "script")], check=True)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("orchctl uncor", ["uncordon"]),
        ("orchctl node stat", ["statusz"]),
        ("orchctl config use-context w", ["work:1", "work:2"]),
        ("orchctl config use-context work:", ["1", "2"]),
        ("orchctl get --context=l", ["lab"]),
        ("orchctl completion ", ["bash", "fish", "zsh"]),
    ],
)
def test_bash_completes(tmp_path: Path, line: str, found: list[str]) -> None:
    (tmp_path / "config").write_text(
        "contexts: [{name: 'work:1'}, {name: 'work:2'}, {name: lab}]\n"
    )
    (tmp_path / "orchctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m orch.ctl.main "$@"\n')
    (tmp_path / "orchctl").chmod(0o755)
    script = f"""{completion.SCRIPTS["bash"]}
        COMP_LINE={line!r} COMP_POINT={len(line)}
        # as readline does: also at colons and equals signs, each of which is a word
        IFS=' ' read -r -a COMP_WORDS <<< "$(sed 's/[:=]/ & /g' <<< "$COMP_LINE")"
        [[ "$COMP_LINE" == *[[:space:]:=] ]] && COMP_WORDS+=("")
        COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
        _orchctl; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True,
        env={**os.environ, "PATH": path, "KUBECONFIG": str(tmp_path / "config")},
    )  # fmt: skip
    assert done.stdout.split() == found
