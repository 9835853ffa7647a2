"""The whole program: one per directory, ready and stopped as a process, and leaving nothing."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.config.load import load_config
from orch.component.process import files
from orch.component.process.system import describe_process
from orch.up import main
from orch.up.layout import Layout
from orch.up.runtime import RuntimeChoice
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


def options(*flags: str) -> argparse.Namespace:
    return main._parser().parse_args(flags)


# ---- as a process


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


def test_it_becomes_ready_and_leaves_only_its_directory(tmp_path: Path) -> None:
    place = tmp_path / "place"
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
    assert rest.endswith("stopping\n")
    assert "Traceback" not in errors.read_text()
    assert [pid for pid in told["pids"].values() if not gone(pid)] == []
    assert [path.name for path in place.iterdir()] == ["run"]
    assert not (run_dir / "cluster.json").exists()
    for log in (run_dir / "logs").glob("*.log"):
        assert "Traceback" not in log.read_text(), log


# ---- the steps of it


async def test_an_endpoint_that_is_given_is_taken_without_looking() -> None:
    given = options("--container-runtime-endpoint=unix:///run/x")
    assert await main._choose_runtime(given, None) == RuntimeChoice("unix:///run/x")


async def test_an_empty_endpoint_asks_for_none_and_is_no_reason_to_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = options("--container-runtime-endpoint=")
    assert await main._choose_runtime(given, None) == RuntimeChoice(None)
    assert caplog.messages == []


async def test_what_is_missing_without_a_runtime_is_said_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert (await main._choose_runtime(options(), None)).endpoint is None
    (message,) = caplog.messages
    assert "running without a container runtime: no --runtime-tool is given" in message


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ([], []),
        (["--etcd-servers=http://a:1"], ["--etcd-servers=http://a:1"]),
        (["--serve-upstream-aliases"], ["--serve-upstream-aliases"]),
    ],
)
def test_what_is_chosen_for_the_api_server_is_passed_on(given: list[str], flags: list[str]) -> None:
    assert main._apiserver_flags(options(*given)) == flags


def test_a_port_of_0_becomes_a_free_one(free_port: Callable[[], int]) -> None:
    wanted = free_port()
    flags = ("--apiserver-port=0", f"--nodeagent-port={wanted}", "--healthz-port=0")
    ports = main._ports(options(*flags))
    assert ports.nodeagent == wanted
    assert all((ports.apiserver, ports.healthz, ports.controller))


def test_the_agents_configuration_is_written_as_the_agent_reads_it(layout: Layout) -> None:
    main._write_agent_files(layout, with_demo=False)
    config = load_config(str(layout.agent_config), str(layout.agent_drop_ins))
    assert config.staticPodPath == str(layout.manifests)
    assert config.podLogsDir == str(layout.logs / "pods")


def test_the_demonstration_comes_once_and_only_with_a_runtime_made_here(layout: Layout) -> None:
    demo = layout.manifests / "demo.yaml"
    main._write_agent_files(layout, with_demo=False)
    assert not demo.exists()
    main._write_agent_files(layout, with_demo=True)
    assert "kind: Pod" in demo.read_text()
    demo.rename(layout.manifests / "mine.yaml")
    main._write_agent_files(layout, with_demo=True)
    assert not demo.exists()
