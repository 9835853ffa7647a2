"""The whole program: one per directory, ready and stopped as a process, and leaving nothing."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orch.component.process import files
from orch.component.process.system import describe_process
from orch.up.layout import Layout
from tests.fakes.programs import PATIENCE_S, gone

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def command(run_dir: Path, *more: str) -> list[str]:
    return [
        sys.executable, "-m", "orch.up.main", f"--run-dir={run_dir}", "--node-name=n1",
        "--apiserver-port=0", "--nodeagent-port=0", "--healthz-port=0", *more,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "run")
    layout.make()
    return layout


def test_one_program_per_directory(layout: Layout) -> None:
    held = files.acquire(str(layout.run_dir / "orch-up.lock"), holder="orch-up")
    try:
        done = subprocess.run(
            command(layout.run_dir), env=environment(), capture_output=True, text=True,
            timeout=PATIENCE_S,
        )  # fmt: skip
    finally:
        os.close(held)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        f"orch-up: error: another orch-up ({describe_process(os.getpid())}) holds the lock file "
        f"{layout.run_dir / 'orch-up.lock'}\n"
    )


def test_a_directory_that_cannot_be_made_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        command(tmp_path / "file" / "run"), env=environment(), capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    run_dir = tmp_path / "file" / "run"
    why = f"[Errno 20] Not a directory: '{run_dir}'"
    told = f"orch-up: error: cannot use --run-dir {run_dir}: {why}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)


def test_it_becomes_ready_and_leaves_only_its_directory(tmp_path: Path) -> None:
    place = tmp_path / "a place"
    place.mkdir()
    run_dir, errors = place / "run", tmp_path / "errors"
    with errors.open("wb") as sink:
        process = subprocess.Popen(
            command(run_dir, "--container-runtime-endpoint="),
            env=environment(), cwd=place, stdout=subprocess.PIPE, stderr=sink, text=True,
        )  # fmt: skip
    try:
        assert process.stdout
        first = process.stdout.readline()
        assert first.startswith("ready after "), errors.read_text()
        assert first.endswith(": node n1\n")
        told = json.loads((run_dir / "cluster.json").read_text())
        assert (told["node"], told["runtime"]) == ("n1", None)
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
        assert process.wait(PATIENCE_S) == 0, errors.read_text()
    finally:
        if process.poll() is None:
            process.kill()  # its daemons end with it
        process.wait()
        assert process.stdout
        process.stdout.close()
    assert "  runtime     none\n" in rest
    kubeconfig = shlex.quote(str(run_dir / "admin.kubeconfig"))
    assert f"  try         kubectl --kubeconfig {kubeconfig} get nodes,pods -A\n" in rest
    assert rest.endswith("stopping\n")
    assert "Traceback" not in errors.read_text()
    assert [pid for pid in told["pids"].values() if not gone(pid)] == []
    assert [path.name for path in place.iterdir()] == ["run"]
    assert not (run_dir / "cluster.json").exists()
    for log in (run_dir / "logs").glob("*.log"):
        assert "Traceback" not in log.read_text(), log
