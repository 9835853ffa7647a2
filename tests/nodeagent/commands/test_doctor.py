"""`nodeagent doctor` as the operator runs it, on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.commands import doctor
from nodeagent.commands.dispatch import dispatch
from orch.component.diagnostics.findings import Finding, fail, ok, warn

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_run_on_this_machine_prints_all_findings_as_json(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    command = "import sys; from nodeagent.commands.dispatch import dispatch; "
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{command} sys.exit(dispatch(sys.argv[1:]))",
            "doctor",
            "-o",
            "json",
            f"--root-dir={tmp_path}/root",
            f"--lock-file={tmp_path}/lock",
            f"--port={free_port()}",
            f"--healthz-port={free_port()}",
            f"--container-runtime-endpoint=unix://{tmp_path}/absent.sock",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    report = json.loads(done.stdout)
    assert done.stderr == ""
    assert done.returncode == report["exitCode"] == 1
    failed = [one["check"] for one in report["findings"] if one["verdict"] == "fail"]
    assert "container runtime" in failed
    assert not (tmp_path / "root").exists()
    assert not (tmp_path / "lock").exists()


@pytest.mark.parametrize(
    ("finding", "code"),
    [(ok("x", "fine"), 0), (warn("x", "y", "z"), 2), (fail("x", "y", "z"), 1)],
)
def test_the_exit_code_is_that_of_the_findings(
    finding: Finding, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def examine(*_: object) -> list[Finding]:
        return [finding]

    monkeypatch.setattr(doctor, "examine", examine)
    assert dispatch(["doctor"]) == code
    assert capsys.readouterr().out.startswith("ok    configuration  valid\n")
    assert dispatch(["doctor", "-o", "json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["exitCode"] == code
    assert [one["check"] for one in report["findings"]] == ["configuration", "x"]


def test_an_invalid_configuration_is_a_finding_among_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def examine(*_: object) -> list[Finding]:
        return [ok("rest", "fine")]

    monkeypatch.setattr(doctor, "examine", examine)
    assert dispatch(["doctor", "--config", str(tmp_path / "absent.yaml")]) == 1
    out = capsys.readouterr().out
    assert "absent.yaml: No such file" in out
    assert "rest" in out
