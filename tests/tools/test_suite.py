"""A few failed tests are asked once more and named; many, or one that fails again, fail the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[2] / "tools" / "testbed" / "suite"
TESTS = """
import pathlib
import pytest

@pytest.mark.parametrize("number", range({unsteady}))
def test_unsteady(number):
    asked = pathlib.Path(f"asked-{{number}}")
    before = asked.exists()
    asked.touch()
    assert before

def test_always():
    assert {always}
"""


def run(directory: Path, *, unsteady: int, always: bool) -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(TESTS.format(unsteady=unsteady, always=always))
    pytest_command = Path(sys.executable).with_name("pytest")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # quicker to start
    return subprocess.run(
        [SUITE, pytest_command], cwd=directory, env=environment, capture_output=True, text=True
    )


def test_what_fails_once_is_asked_again_and_named(tmp_path: Path) -> None:
    done = run(tmp_path, unsteady=2, always=True)
    assert done.returncode == 0, done.stdout
    named = [line for line in done.stdout.splitlines() if line.startswith("UNSTEADY")]
    assert [line.rpartition("::")[2] for line in named] == ["test_unsteady[0]", "test_unsteady[1]"]


@pytest.mark.parametrize(
    ("unsteady", "always"),
    [pytest.param(1, False, id="one fails again"), pytest.param(4, True, id="too many")],
)
def test_more_than_that_is_a_failure(tmp_path: Path, unsteady: int, always: bool) -> None:
    done = run(tmp_path, unsteady=unsteady, always=always)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "UNSTEADY" not in done.stdout
