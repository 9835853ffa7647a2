"""Twelve staged culprits on a machine with cgroup v2: who is accused, and that nobody else is.

Real processes in real cgroups of an emulated machine (tools/testbed/culprits.py), some forty
seconds each; the table that is printed is that of docs/pressure.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.systemd.conftest import ROOT, or_skip
from tools.testbed import installed
from tools.testbed.culprits import CASES
from tools.testbed.machine import Machine
from tools.testbed.virtual import ensure, virtual

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2400)]

PROGRAM = "/opt/testbed/culprits.py"
RIGHT_AT_LEAST = 11


@contextmanager
def started(machine_root: Any, scratch: Path) -> Iterator[Machine]:
    """The machine without a runtime: nothing else runs there."""

    def prepare(machine: Machine) -> None:
        machine.write(installed.PYTHON, installed.wrapper(""), mode=0o755)
        machine.check("systemctl", "stop", "containerd.service", timeout_s=180)

    base = ROOT / ".test" / "testbed" / "vm"
    or_skip(lambda: ensure(base, machine_root, installed.shown()))
    with virtual(base, scratch, prepare) as machine:
        yield machine


def test_the_right_culprit_is_accused_and_nobody_falsely(machine_root: Any, tmp_path: Path) -> None:
    verdicts = []
    with started(machine_root, tmp_path) as machine:
        for case in CASES:
            said = machine.check(installed.PYTHON, PROGRAM, "--seconds", "15", case, timeout_s=400)
            verdicts.append(json.loads(said.splitlines()[-1]))
    print("\n" + "\n".join(map(row, verdicts)))
    assert [v["case"] for v in verdicts if v["falsely"]] == []
    assert sum(v["right"] for v in verdicts) >= RIGHT_AT_LEAST


def row(verdict: dict[str, Any]) -> str:
    """A row of the table: the case, whether it was right, what was said."""
    said = "; ".join(
        f"{cause['resource']}/{cause['kind']}: {cause['does']}"
        for cause in verdict["report"]["causes"]
    )
    return f"| {verdict['case']} | {'yes' if verdict['right'] else 'no'} | {said or 'nothing'} |"
